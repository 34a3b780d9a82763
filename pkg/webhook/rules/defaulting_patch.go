package rules

import (
	"maps"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// PatchOperation is one operation of a JSON Patch (RFC 6902).
type PatchOperation struct {
	Op    string `json:"op"`
	Path  string `json:"path"`
	Value any    `json:"value"`
}

// Patch returns the operations that add the default to a Service. They add one annotation or one field, and change
// nothing else, including fields that are unknown here.
func (d Default) Patch(service *Service) []PatchOperation {
	switch d.Setting {
	case TrafficDistribution:
		return []PatchOperation{{Op: "add", Path: "/spec/trafficDistribution", Value: d.Value}}
	case TopologyMode:
		return annotationPatch(service, policy.TopologyModeAnnotation, d.Value)
	case TopologyKeys:
		return annotationPatch(service, policy.TopologyKeysAnnotation, d.Value)
	default:
		return nil
	}
}

// annotationPatch adds an annotation. If the map is absent or null, the map is added with it.
func annotationPatch(service *Service, key, value string) []PatchOperation {
	const annotations = "/metadata/annotations"
	if service.Metadata.Annotations == nil {
		return []PatchOperation{{Op: "add", Path: annotations, Value: map[string]string{key: value}}}
	}
	return []PatchOperation{{Op: "add", Path: annotations + "/" + escapePointer.Replace(key), Value: value}}
}

// escapePointer escapes a name for a JSON Pointer (RFC 6901).
var escapePointer = strings.NewReplacer("~", "~0", "/", "~1")

// applyTo returns a copy of a Service with the default.
func (d Default) applyTo(service *Service) *Service {
	modified := *service
	modified.Metadata.Annotations = maps.Clone(service.Metadata.Annotations)
	if modified.Metadata.Annotations == nil {
		modified.Metadata.Annotations = map[string]string{}
	}
	switch d.Setting {
	case TrafficDistribution:
		modified.Spec.TrafficDistribution = &d.Value
	case TopologyMode:
		modified.Metadata.Annotations[policy.TopologyModeAnnotation] = d.Value
	case TopologyKeys:
		modified.Metadata.Annotations[policy.TopologyKeysAnnotation] = d.Value
	}
	return &modified
}
