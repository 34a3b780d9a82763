package convert

import (
	"cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// The kinds that the proxy reads, as they are named in findings.
const (
	ServiceKind       = "Service"
	EndpointSliceKind = "EndpointSlice"
	NodeKind          = "Node"
	ServiceCIDRKind   = "ServiceCIDR"
)

// ObjectKey identifies an object of the cluster.
type ObjectKey struct {
	Kind *Kind
	Name model.ObjectName // without a namespace if the kind is cluster-scoped
}

// Compare orders objects by kind, namespace and name.
func (k ObjectKey) Compare(other ObjectKey) int {
	return cmp.Or(cmp.Compare(k.Kind.Name, other.Kind.Name), k.Name.Compare(other.Name))
}
