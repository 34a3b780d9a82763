package convert

import (
	"cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The kinds that the proxy reads, as a Problem names them.
const (
	ServiceKind       = "Service"
	EndpointSliceKind = "EndpointSlice"
	NodeKind          = "Node"
	ServiceCIDRKind   = "ServiceCIDR"
)

// ObjectKey names an object of the cluster.
type ObjectKey struct {
	Kind string
	Name model.ObjectName // without a namespace if the kind is cluster-scoped
}

// IsClusterScoped reports whether objects of this kind have no namespace.
func (k ObjectKey) IsClusterScoped() bool { return k.Kind == NodeKind || k.Kind == ServiceCIDRKind }

// String returns the object as people call it: "Service default/web", "Node node-1".
func (k ObjectKey) String() string {
	if k.IsClusterScoped() {
		return k.Kind + " " + k.Name.Name
	}
	return k.Kind + " " + k.Name.String()
}

// Compare orders objects by kind, namespace and name.
func (k ObjectKey) Compare(other ObjectKey) int {
	return cmp.Or(cmp.Compare(k.Kind, other.Kind), k.Name.Compare(other.Name))
}
