package policy

import (
	"fmt"
	"strings"
)

// KeysToBound returns the keys to which a bound applies. These are the Service's own keys; or else the keys that
// spec.trafficDistribution stands for, unless mode Auto overrides it; or else those of mode balanced. It returns nil if
// none of them prefers any endpoint.
func KeysToBound(serviceKeys []Key, distribution string, mode ModeSetting) []Key {
	switch {
	case serviceKeys != nil && !ConflictsWithLocal(serviceKeys):
		return nil // `*` alone
	case serviceKeys != nil:
		return serviceKeys
	case mode.IsAuto():
		return nil
	}
	if keys := DistributionKeys(distribution); keys != nil {
		return keys
	}
	if mode.IsBalanced() {
		return []Key{Zone, AnyNode}
	}
	return nil
}

// DistributionKeys returns the keys that a spec.trafficDistribution stands for, according to the hints that the
// EndpointSlice controller writes. It returns nil for an unknown value.
func DistributionKeys(distribution string) []Key {
	switch distribution {
	case PreferSameZone, PreferClose:
		return []Key{Zone, AnyNode}
	case PreferSameNode:
		return []Key{Hostname, Zone, AnyNode}
	}
	return nil
}

// Ends of sentences about annotations without effect, with the remedy.
const (
	BalancedConflict = "has no effect together with " + TopologyAwareHintsAnnotation + "; keep one of them"

	NeedsBound = "has no effect without a load bound; add " + MaxLoadAnnotation

	MeasuredHeadless = "has no effect on a headless Service, because its connections are not counted; remove it"
)

// ReasonBoundWithAuto returns the message for a bound combined with mode Auto.
func ReasonBoundWithAuto(mode ModeSetting) string {
	return "may not be used with " + mode.Annotation + "=" + mode.Value + "; set " + TopologyModeAnnotation + "=" + ModeBalanced
}

// ReasonNothingToBound returns the message for a bound without keys, or with keys that prefer no endpoint.
func ReasonNothingToBound(serviceKeys []Key) string {
	if serviceKeys != nil {
		return `has nothing to bound: "*" alone prefers no endpoint; write keys before it, such as "` + string(Zone) + `, *"`
	}
	return "has nothing to bound; add " + TopologyKeysAnnotation + " or spec.trafficDistribution, or set " +
		TopologyModeAnnotation + "=" + ModeBalanced
}

// OverridesBalanced reports whether mode balanced has no effect because the other annotation applies.
func OverridesBalanced(annotations map[string]string) bool {
	return annotations[TopologyModeAnnotation] == ModeBalanced && !ModeOf(annotations).IsBalanced()
}

// IsUnknownMode reports whether a mode is in our domain, ignoring case and spaces, but unknown. Modes of other domains
// belong to other programs.
func IsUnknownMode(value string) bool {
	const longest = 64 // including spaces
	start := strings.ToLower(strings.TrimSpace(value[:min(len(value), longest)]))
	return value != ModeBalanced && strings.HasPrefix(start, Domain)
}

// UnknownMode returns the message for such a mode.
func UnknownMode(value string) string {
	return fmt.Sprintf("%.*q is not a mode of vicinity.dev; %s", maxMode, value, SuggestMode(value))
}

// maxMode is how much of a mode a message quotes.
const maxMode = 64

// SuggestMode returns which mode to write.
func SuggestMode(value string) string {
	if Suggest(value, ModeBalanced) != "" {
		return fmt.Sprintf("did you mean %q?", ModeBalanced)
	}
	return fmt.Sprintf("the only one is %q", ModeBalanced)
}
