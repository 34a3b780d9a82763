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

// Setting is a label or an annotation that the proxy reads. One whose value cannot be read counts as absent, and the rest
// of its object is in force. If the previous value stayed in force, a proxy that starts would decide differently from
// one that runs.
type Setting struct {
	Key          string
	IsAnnotation bool
	// wrong returns what is wrong with a value. Nil: any value can be read, or errors are reported elsewhere.
	wrong func(path *field.Path, value string) field.ErrorList
}

// The settings of each kind. For a Service that is served, policy.Parse says what is wrong with its annotations.
//
// The annotation service.beta.kubernetes.io/load-balancer-source-ranges is not among them, as in kube-proxy: clouds
// apply it in front of the node.
var (
	serviceSettings = append([]Setting{{Key: policy.ServiceProxyNameLabel}}, annotations()...)
	sliceSettings   = []Setting{serviceName, {Key: corev1.IsHeadlessService}, triggeredAt}
	nodeSettings    = nodeLabels(policy.NodeLabels[:]...)
)

func annotations() []Setting {
	var settings []Setting
	for _, annotation := range policy.Annotations {
		settings = append(settings, Setting{Key: annotation.Name, IsAnnotation: true})
	}
	return settings
}

func nodeLabels(labels ...policy.NodeLabel) []Setting {
	var settings []Setting
	for _, label := range labels {
		settings = append(settings, Setting{Key: label.Name, wrong: func(path *field.Path, value string) field.ErrorList {
			if err := label.Check(value); err != nil {
				return field.ErrorList{field.Invalid(path, value, err.Error())}
			}
			return nil
		}})
	}
	return settings
}

var (
	// serviceName names the Service of a slice. Names of Services are DNS labels.
	serviceName = Setting{Key: discoveryv1.LabelServiceName, wrong: func(path *field.Path, value string) field.ErrorList {
		if value == "" {
			return nil // a slice of no Service
		}
		return invalid(path, value, validation.IsDNS1123Label(value))
	}}
	triggeredAt = Setting{
		Key: corev1.EndpointsLastChangeTriggerTime, IsAnnotation: true,
		wrong: func(path *field.Path, value string) field.ErrorList {
			if _, err := time.Parse(time.RFC3339Nano, value); err != nil {
				return field.ErrorList{field.Invalid(path, value, "must be a time, such as 2026-11-22T18:00:00Z")}
			}
			return nil
		},
	}
)

// value returns the value of the setting on an object; empty if it is absent or cannot be read.
func (s *Setting) value(object Object) string {
	value, present := s.find(object)
	if !present || s.wrong != nil && len(s.wrong(nil, value)) > 0 {
		return ""
	}
	return value
}

func (s *Setting) find(object Object) (value string, present bool) {
	of := object.GetLabels()
	if s.IsAnnotation {
		of = object.GetAnnotations()
	}
	value, present = of[s.Key]
	return value, present
}

func (s *Setting) path() *field.Path {
	if s.IsAnnotation {
		return field.NewPath("metadata", "annotations").Key(s.Key)
	}
	return labels.Key(s.Key)
}

// labels is the path of an object's labels.
var labels = field.NewPath("metadata", "labels")

// ignored returns what is wrong with an object's settings, out of some.
func ignored(settings []Setting, object Object) field.ErrorList {
	var errs field.ErrorList
	for i := range settings {
		s := &settings[i]
		if value, present := s.find(object); present && s.wrong != nil {
			errs = append(errs, s.wrong(s.path(), value)...)
		}
	}
	return errs
}

// ignoredOfNode returns what is wrong with the labels of a Node, any of which a Service may name.
func ignoredOfNode(object Object, _ View) field.ErrorList {
	errs, all := ignored(nodeSettings, object), object.GetLabels()
	for _, key := range slices.Sorted(maps.Keys(all)) {
		errs = append(errs, wrongLabel(key, all[key])...)
	}
	return errs
}

// wrongLabel returns why an API server would not accept a label; none if it would.
func wrongLabel(key, value string) field.ErrorList {
	return metav1validation.ValidateLabels(map[string]string{key: value}, labels)
}

// labelsThatCanBe returns the labels of a Node except for those that no API server would accept.
func labelsThatCanBe(all map[string]string) map[string]string {
	can := maps.Clone(all)
	maps.DeleteFunc(can, func(key, value string) bool { return len(wrongLabel(key, value)) > 0 })
	return can
}

// ignoredOfSlice returns what is wrong with the settings of a slice that could be served.
func ignoredOfSlice(object Object, view View) field.ErrorList {
	if !isServable(object.(*discoveryv1.EndpointSlice), view) {
		return nil
	}
	return ignored(sliceSettings, object)
}

// ignoredOfService returns what is wrong with the topology keys of a headless Service. It is served without them, by the
// cluster's DNS.
func ignoredOfService(object Object, view View) field.ErrorList {
	service := object.(*corev1.Service)
	if !view.WithHeadless || !isHeadlessService(service) || !policy.IsHandledBy(service.Labels, view.ServiceProxyName) {
		return nil
	}
	keys := Setting{Key: policy.TopologyKeysAnnotation, IsAnnotation: true}
	_, without := TopologyOf(service, view)
	reason := missingKeysReason(without)
	if reason == "" {
		return nil
	}
	return field.ErrorList{field.Invalid(keys.path(), service.Annotations[keys.Key], reason)}
}

// missingKeysReason returns why topology keys have no effect; empty if they have one, or there are none.
func missingKeysReason(ignored []policy.Ignored) string {
	for _, one := range ignored {
		if one.Annotation == policy.TopologyKeysAnnotation {
			return one.Reason
		}
	}
	return ""
}

// ignoredForOtherProxy returns what is wrong with some settings of another node. Those of this node are reported with its
// Node.
func ignoredForOtherProxy(settings []Setting) func(Object, View) field.ErrorList {
	return func(object Object, view View) field.ErrorList {
		if object.GetName() == view.Node {
			return nil
		}
		return ignored(settings, object)
	}
}
