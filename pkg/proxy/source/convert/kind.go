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

// Kind describes a kind of object that the proxy reads: how to request it from an API server, how to convert an object,
// and its field in a change. Both sources use it. kinds.go lists the kinds.
type Kind struct {
	Name            string // as in a manifest and in a finding: "Service"
	Group           schema.GroupVersion
	IsClusterScoped bool

	// Resource is the kind's name in the paths of an API server: "services".
	Resource string
	// AddToScheme registers the types of the group.
	AddToScheme func(*runtime.Scheme) error
	// Select returns the objects to request from an API server; nil selects all.
	Select func(View) Selector
	// IsMetadataOnly means that only the metadata of the objects is requested from an API server.
	IsMetadataOnly bool
	// IsOnDemand means that the objects are requested from an API server only while a Service needs them.
	IsOnDemand bool
	// Optional describes the effect if the API server does not have the resource, or forbids to list it; nil means that
	// the proxy cannot start without it.
	Optional *Optional

	// New returns an empty object of the kind's Kubernetes type.
	New func() Object
	// Complete sets the defaults that the API server sets when it accepts an object. It may be nil.
	Complete func(Object)
	// Convert converts an object into a value of the model. It returns nil without an error if the object is not ours to
	// serve, and errors if it is invalid.
	Convert func(Object, View) (any, field.ErrorList)
	// Settings are the labels and annotations that are read by name. Any other label of a Node is read, too: a Service may
	// name it.
	Settings []Setting
	// IgnoredSettings returns errors for the labels and annotations of an object that count as absent because their values
	// are invalid; nil means that there are none.
	IgnoredSettings func(Object, View) field.ErrorList
	// ForOtherProxy reports whether an object that is not ours to serve belongs to another proxy; nil means that none
	// does.
	ForOtherProxy func(Object, View) bool
	// IsSame reports whether two values have the same effect. Either may be nil.
	IsSame func(a, b any) bool
	// Apply puts a value into a change. A nil value means that the object was deleted, or is no longer ours to serve.
	Apply func(change *model.Change, name model.ObjectName, value any)
	// read reads a value that was written as JSON.
	read func(text []byte) (any, error)
}

// Object is a Kubernetes object.
type Object interface {
	runtime.Object
	metav1.Object
}

// View configures which objects a proxy sees, and how.
type View struct {
	// Node is the name of this node.
	Node string
	// ServiceProxyName is the name of this proxy in the label service.kubernetes.io/service-proxy-name. If it is empty,
	// the proxy serves the Services without that label.
	ServiceProxyName string
	// NodeAddress is an address of this node that replaces the one of its family in the Node object. If it is invalid, the
	// object's addresses are used.
	NodeAddress netip.Addr
	// WithoutExternalIPs skips spec.externalIPs of every Service.
	WithoutExternalIPs bool
	// DefaultMaxLoad bounds the load of Services that prefer some endpoints and have no bound of their own, in percent of
	// the mean; 0 for none.
	DefaultMaxLoad uint64
	// DefaultMeasured selects measured demand for Services with a bound that name neither clients nor a demand source.
	DefaultMeasured bool
	// WithHeadless also selects headless Services with topology keys, and their slices, for DNS.
	WithHeadless bool
	// Proxies is the headless Service over the proxies' own pods; without a name there is none.
	Proxies model.ObjectName
	// WithPodNames names an endpoint of a headless Service after its pod if it has no hostname.
	WithPodNames bool
}

// Selector selects objects of a kind, in the syntax of the API server. The zero value selects all.
type Selector struct{ Namespace, Labels, Fields string }

// Optional has the log messages for a kind that the proxy can start without.
type Optional struct{ Missing, Forbidden string }

// describe completes the description of a kind of the Kubernetes type From, whose values are of type To. change returns
// the map of such values in a change, by key.
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
	kind.Apply = func(target *model.Change, name model.ObjectName, value any) {
		values := change(target)
		if *values == nil {
			*values = map[Key]To{}
		}
		typed, _ := value.(To) // the zero value for nil
		(*values)[key(name)] = typed
	}
	return &kind
}

// fullName and plainName return keys of a change.
func fullName(name model.ObjectName) model.ObjectName { return name }
func plainName(name model.ObjectName) string          { return name.Name }
