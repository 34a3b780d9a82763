package convert

import (
	"encoding/json"
	"net/netip"
	"reflect"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// Kind describes a kind of object that the proxy reads: how to ask an API server for it, how to convert an object, and
// its place in a change. Both sources read it here. kinds.go lists the kinds.
type Kind struct {
	Name            string // as in a manifest and in a finding: "Service"
	Group           schema.GroupVersion
	IsClusterScoped bool

	// Resource is the kind's name in the paths of an API server: "services".
	Resource string
	// AddToScheme registers the types of the group.
	AddToScheme func(*runtime.Scheme) error
	// Select says which objects an API server is asked for. Nil: all.
	Select func(View) Selector
	// IsMetadataOnly: an API server is asked for the metadata of the objects.
	IsMetadataOnly bool
	// IsOnDemand: an API server is asked for the objects only while a Service needs them.
	IsOnDemand bool
	// Optional says what it means if the API server has no such resource, or forbids to list it. Nil: the proxy cannot
	// start without it.
	Optional *Optional

	// New returns an empty object of the kind's Kubernetes type.
	New func() Object
	// Complete fills in what the API server fills in when it takes an object. It may be nil.
	Complete func(Object)
	// Convert turns an object into a value of the model. Nil without an error: it is not ours to serve. An error says why
	// it is refused.
	Convert func(Object, View) (any, field.ErrorList)
	// Settings are the labels and annotations that are read by name. Any other label of a Node is read, too: a Service may
	// name it.
	Settings []Setting
	// IgnoredSettings says which labels and annotations of an object count as absent, because their values cannot be read. Nil: none
	// does.
	IgnoredSettings func(Object, View) field.ErrorList
	// ForOtherProxy reports whether an object that is not ours to serve belongs to another proxy. Nil: none does.
	ForOtherProxy func(Object, View) bool
	// IsSame reports whether two values mean the same to their readers. Either may be nil.
	IsSame func(a, b any) bool
	// Apply puts a value into a change. A nil value: the object is gone, or not ours to serve any more.
	Apply func(change *model.Change, name model.ObjectName, value any)
	// read reads a value that was written as JSON.
	read func(text []byte) (any, error)
}

// Object is an object of Kubernetes.
type Object interface {
	runtime.Object
	metav1.Object
}

// View says whose view of the cluster is wanted.
type View struct {
	// Node is the name of this node.
	Node string
	// ServiceProxyName is the name of this proxy in the label service.kubernetes.io/service-proxy-name. Empty: it serves
	// the Services without that label.
	ServiceProxyName string
	// NodeAddress is an address of this node that replaces the one of its family in the Node object. Invalid: the object's
	// addresses count.
	NodeAddress netip.Addr
	// WithoutExternalIPs: spec.externalIPs are left out of every Service.
	WithoutExternalIPs bool
	// DefaultMaxLoad bounds the load of Services that prefer some endpoints and have no bound of their own, in percent of
	// the mean; 0 for none.
	DefaultMaxLoad uint64
	// DefaultMeasured: Services with a bound that name neither clients nor a demand source are planned with measured demand.
	DefaultMeasured bool
	// WithHeadless: headless Services with topology keys are wanted too, and their slices, for answers by DNS.
	WithHeadless bool
	// Proxies is the headless Service over the proxies' own pods; without a name there is none.
	Proxies model.ObjectName
	// WithPodNames: an endpoint of a headless Service without a hostname is named after its pod.
	WithPodNames bool
}

// Selector says which objects of a kind an API server is asked for, as it takes it. Empty: all.
type Selector struct{ Namespace, Labels, Fields string }

// Optional are sentences for the log about a kind that the proxy can start without.
type Optional struct{ Missing, Forbidden string }

// describe completes the description of a kind of the Kubernetes type From, whose values are of type To. change
// returns the place of such values in a change, by key.
func describe[From any, To any, Key comparable, P interface {
	*From
	Object
}](
	kind Kind, convert func(P, View) (To, field.ErrorList), change func(*model.Change) *map[Key]To, key func(model.ObjectName) Key,
) *Kind {
	kind.New = func() Object { return P(new(From)) }
	kind.Convert = func(object Object, view View) (any, field.ErrorList) {
		value, errs := convert(object.(P), view)
		if len(errs) > 0 || reflect.ValueOf(value).IsZero() {
			return nil, errs
		}
		return value, nil
	}
	kind.read = func(text []byte) (any, error) {
		var value To
		err := json.Unmarshal(text, &value)
		return value, err
	}
	if kind.IsSame == nil {
		kind.IsSame = reflect.DeepEqual
	}
	kind.Apply = func(to *model.Change, name model.ObjectName, value any) {
		values := change(to)
		if *values == nil {
			*values = map[Key]To{}
		}
		typed, _ := value.(To) // of nil: none
		(*values)[key(name)] = typed
	}
	return &kind
}

// fullName and plainName are keys of a change.
func fullName(name model.ObjectName) model.ObjectName { return name }
func plainName(name model.ObjectName) string          { return name.Name }
