package source

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

// objectKey names an object of the cluster.
type objectKey struct {
	kind string
	name model.ObjectName // without a namespace if the kind is cluster-scoped
}

func (k objectKey) isClusterScoped() bool { return k.kind == NodeKind || k.kind == ServiceCIDRKind }

// String returns the object as people call it: "Service default/web", "Node node-1".
func (k objectKey) String() string {
	if k.isClusterScoped() {
		return k.kind + " " + k.name.Name
	}
	return k.kind + " " + k.name.String()
}

func (k objectKey) compare(other objectKey) int {
	return cmp.Or(cmp.Compare(k.kind, other.kind), k.name.Compare(other.name))
}
