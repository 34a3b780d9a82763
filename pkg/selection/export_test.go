package selection

// The codes of nodes that are avoided.
const (
	OnlyEvacuated   Code = "OnlyEvacuated"
	OnlyUnreachable Code = "OnlyUnreachable"
	NodeEvacuated   Code = "NodeEvacuated"
	NodeUnreachable Code = "NodeUnreachable"
)

// Codes lists every code that has a sentence, in a fixed order.
func Codes() []Code {
	codes := make([]Code, len(sentences))
	for i := range sentences {
		codes[i] = sentences[i].code
	}
	return codes
}
