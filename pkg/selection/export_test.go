package selection

// The codes of demoted nodes.
const (
	OnlyEvacuated   Code = "OnlyEvacuated"
	OnlyUnreachable Code = "OnlyUnreachable"
	NodeEvacuated   Code = "NodeEvacuated"
	NodeUnreachable Code = "NodeUnreachable"
)

// Codes returns every code that has a sentence, in a fixed order.
func Codes() []Code {
	codes := make([]Code, len(sentences))
	for i := range sentences {
		codes[i] = sentences[i].code
	}
	return codes
}
