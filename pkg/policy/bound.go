package policy

import (
	"fmt"
	"strings"
)

// KeysToBound are the keys that a bound is about: a Service's own; or else those that spec.trafficDistribution stands
// for, unless mode Auto takes its place; or else those that mode balanced stands for. Nil if none of them prefers any
// endpoint.
func KeysToBound(own []Key, distribution string, mode ModeSetting) []Key {
	switch {
	case own != nil && !ConflictsWithLocal(own):
		return nil // `*` alone
	case own != nil:
		return own
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

// DistributionKeys are the keys that a spec.trafficDistribution stands for, as the EndpointSlice controller writes
// hints. Nil if the value is unknown.
func DistributionKeys(distribution string) []Key {
	switch distribution {
	case PreferSameZone, PreferClose:
		return []Key{Zone, AnyNode}
	case PreferSameNode:
		return []Key{Hostname, Zone, AnyNode}
	}
	return nil
}

// What contradicts a bound, and what to do about it, as the rest of a sentence about the annotation.
const (
	BalancedConflict = "has no effect beside " + TopologyAwareHintsAnnotation + "; keep one of them"

	ClientsNeedBound = "has no effect without a bound; add " + MaxLoadAnnotation

	MeasuredHeadless = "has no effect on a headless Service: nobody counts who dials its endpoints; remove it"
)

// ReasonBoundWithAuto is what to say about a bound beside mode Auto.
func ReasonBoundWithAuto(mode ModeSetting) string {
	return "may not be used with " + mode.Annotation + "=" + mode.Value + "; set " + TopologyModeAnnotation + "=" + ModeBalanced
}

// ReasonNothingToBound is what to say about a bound without keys to bound, or beside keys that prefer no endpoint.
func ReasonNothingToBound(own []Key) string {
	if own != nil {
		return `has nothing to bound: "*" alone prefers no endpoint; write keys before it, such as "` + string(Zone) + `, *"`
	}
	return "has nothing to bound; add " + TopologyKeysAnnotation + " or spec.trafficDistribution, or set " +
		TopologyModeAnnotation + "=" + ModeBalanced
}

// OverridesBalanced reports whether mode balanced has no effect because the other annotation decides.
func OverridesBalanced(annotations map[string]string) bool {
	return annotations[TopologyModeAnnotation] == ModeBalanced && !ModeOf(annotations).IsBalanced()
}

// IsUnknownMode reports whether a mode is in our domain, whatever its case and spaces, but unknown. Modes of other domains
// belong to other programs.
func IsUnknownMode(value string) bool {
	const longest = 64 // with whatever spaces
	start := strings.ToLower(strings.TrimSpace(value[:min(len(value), longest)]))
	return value != ModeBalanced && strings.HasPrefix(start, Domain)
}

// UnknownMode is what to say of such a mode.
func UnknownMode(value string) string {
	return fmt.Sprintf("%.*q is no mode of ours; %s", maxMode, value, SuggestMode(value))
}

// maxMode is how much of a mode a message repeats.
const maxMode = 64

// SuggestMode says which mode to write.
func SuggestMode(value string) string {
	if Suggest(value, ModeBalanced) != "" {
		return fmt.Sprintf("did you mean %q?", ModeBalanced)
	}
	return fmt.Sprintf("the only one is %q", ModeBalanced)
}
