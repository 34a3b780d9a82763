package convert

import (
	"maps"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1validation "k8s.io/apimachinery/pkg/apis/meta/v1/validation"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

// Setting is a label or an annotation that the proxy reads. If its value is invalid, it counts as absent, and the rest
// of its object is used. If the previous value stayed active, a starting proxy would decide differently from a running
// one.
type Setting struct {
	Key          string
	IsAnnotation bool
	// validate returns the errors of a value; nil if any value is valid, or errors are reported elsewhere.
	validate func(path *field.Path, value string) field.ErrorList
}

// The settings of each kind. For a Service that is served, policy.Parse reports the errors of its annotations.
//
// The annotation service.beta.kubernetes.io/load-balancer-source-ranges is not among them, as in kube-proxy: clouds
// apply it in front of the node.
var (
	serviceSettings = append([]Setting{{Key: policy.ServiceProxyNameLabel}}, annotationSettings()...)
	sliceSettings   = []Setting{serviceNameSetting, {Key: corev1.IsHeadlessService}, triggeredAtSetting}
	nodeSettings    = nodeLabelSettings(policy.NodeLabels[:]...)
)

func annotationSettings() []Setting {
	var settings []Setting
	for _, annotation := range policy.Annotations {
		settings = append(settings, Setting{Key: annotation.Name, IsAnnotation: true})
	}
	return settings
}

func nodeLabelSettings(labels ...policy.NodeLabel) []Setting {
	var settings []Setting
	for _, label := range labels {
		settings = append(settings, Setting{Key: label.Name, validate: func(path *field.Path, value string) field.ErrorList {
			if err := label.Check(value); err != nil {
				return field.ErrorList{field.Invalid(path, value, err.Error())}
			}
			return nil
		}})
	}
	return settings
}

var (
	// serviceNameSetting is the label with the name of a slice's Service. Names of Services are DNS labels.
	serviceNameSetting = Setting{Key: discoveryv1.LabelServiceName, validate: func(path *field.Path, value string) field.ErrorList {
		if value == "" {
			return nil // the slice belongs to no Service
		}
		return invalid(path, value, validation.IsDNS1123Label(value))
	}}
	triggeredAtSetting = Setting{
		Key: corev1.EndpointsLastChangeTriggerTime, IsAnnotation: true,
		validate: func(path *field.Path, value string) field.ErrorList {
			if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
				return field.ErrorList{field.Invalid(path, value, "must be a time, such as 2026-11-22T18:00:00Z")}
			}
			return nil
		},
	}
)

// value returns the value of the setting on an object; empty if it is absent or invalid.
func (s *Setting) value(object Object) string {
	value, present := s.find(object)
	if !present || s.validate != nil && len(s.validate(nil, value)) > 0 {
		return ""
	}
	return value
}

func (s *Setting) find(object Object) (value string, present bool) {
	values := object.GetLabels()
	if s.IsAnnotation {
		values = object.GetAnnotations()
	}
	value, present = values[s.Key]
	return value, present
}

func (s *Setting) path() *field.Path {
	if s.IsAnnotation {
		return field.NewPath("metadata", "annotations").Key(s.Key)
	}
	return labelsPath.Key(s.Key)
}

// labelsPath is the path of an object's labels.
var labelsPath = field.NewPath("metadata", "labels")

// settingErrors returns the errors of some settings of an object.
func settingErrors(settings []Setting, object Object) field.ErrorList {
	var errs field.ErrorList
	for i := range settings {
		s := &settings[i]
		if value, present := s.find(object); present && s.validate != nil {
			errs = append(errs, s.validate(s.path(), value)...)
		}
	}
	return errs
}

// ignoredNodeSettings returns the errors of the labels of a Node. A Service may name any of them.
func ignoredNodeSettings(object Object, _ View) field.ErrorList {
	errs, all := settingErrors(nodeSettings, object), object.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, checkLabel(key, all[key])...)
	}
	return errs
}

// checkLabel returns the errors for which an API server would reject a label; none if it would accept it.
func checkLabel(key, value string) field.ErrorList {
	return metav1validation.ValidateLabels(map[string]string{key: value}, labelsPath)
}

// validLabels returns the labels of a Node except those that every API server would reject.
func validLabels(all map[string]string) map[string]string {
	valid := maps.Clone(all)
	maps.DeleteFunc(valid, func(key, value string) bool { return len(checkLabel(key, value)) > 0 })
	return valid
}

// ignoredSliceSettings returns the errors of the settings of a slice that could be served.
func ignoredSliceSettings(object Object, view View) field.ErrorList {
	if !isServable(object.(*discoveryv1.EndpointSlice), view) {
		return nil
	}
	return settingErrors(sliceSettings, object)
}

// ignoredServiceSettings returns the errors of the topology keys of a headless Service. Without valid keys only the
// cluster's DNS serves the Service.
func ignoredServiceSettings(object Object, view View) field.ErrorList {
	service := object.(*corev1.Service)
	if !view.WithHeadless || !isHeadlessService(service) || !policy.IsHandledBy(service.Labels, view.ServiceProxyName) {
		return nil
	}
	keys := Setting{Key: policy.TopologyKeysAnnotation, IsAnnotation: true}
	_, ignoredAnnotations := TopologyOf(service, view)
	reason := missingKeysReason(ignoredAnnotations)
	if reason == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(keys.path(), service.Annotations[keys.Key], reason)}
}

// missingKeysReason returns why topology keys have no effect; empty if they have one, or there are none.
func missingKeysReason(ignored []policy.IgnoredAnnotation) string {
	for _, annotation := range ignored {
		if annotation.Annotation == policy.TopologyKeysAnnotation {
			return annotation.Reason
		}
	}
	return ""
}

// ignoredOtherNodeSettings returns a function for the errors of some settings of other nodes. Those of this node are
// reported with its Node.
func ignoredOtherNodeSettings(settings []Setting) func(Object, View) field.ErrorList {
	return func(object Object, view View) field.ErrorList {
		if object.GetName() == view.Node {
			return nil
		}
		return settingErrors(settings, object)
	}
}
