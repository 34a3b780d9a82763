package policy

// The annotations that turn Kubernetes' own topology aware routing on. The second one is deprecated, and counts all the same.
const (
	TopologyModeAnnotation       = "service.kubernetes.io/topology-mode"
	TopologyAwareHintsAnnotation = "service.kubernetes.io/topology-aware-hints"
)

// Values of these annotations. Kubernetes documents both spellings, at different times.
const (
	ModeAuto          = "Auto"
	ModeAutoLower     = "auto"
	ModeDisabled      = "Disabled"
	ModeDisabledLower = "disabled"
)

// ModeSetting is the annotation that decides about topology aware routing.
type ModeSetting struct {
	Annotation string // TopologyModeAnnotation or TopologyAwareHintsAnnotation; empty without either
	Value      string
}

// ModeOf returns the annotation that decides: the deprecated one, if a Service has both (hintsEnabled in
// k8s.io/endpointslice/utils.go).
func ModeOf(annotations map[string]string) ModeSetting {
	for _, name := range [...]string{TopologyAwareHintsAnnotation, TopologyModeAnnotation} {
		if value, present := annotations[name]; present {
			return ModeSetting{Annotation: name, Value: value}
		}
	}
	return ModeSetting{}
}

// IsAuto reports whether the EndpointSlice controller computes hints. It knows these two spellings; every other value, whatever its
// case and spaces, is treated as Disabled.
func (m ModeSetting) IsAuto() bool {
	return m.Annotation != "" && (m.Value == ModeAuto || m.Value == ModeAutoLower)
}
