package folder

import (
	"net/netip"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// object is an object in the state in which it is handed over: at most one of the four. An object that exists and is not
// ours to serve, such as a headless Service, has none.
type object struct {
	service *model.Service
	slice   *model.EndpointSlice
	node    *model.Node
	// serviceCIDR points to the ranges because an object must be comparable.
	serviceCIDR *[]netip.Prefix
}

// prefixes returns the ranges of a ServiceCIDR; nil if the object is none.
func (o object) prefixes() []netip.Prefix {
	if o.serviceCIDR == nil {
		return nil
	}
	return *o.serviceCIDR
}

// claim is one object of a file. Either it is good, or its problems say what is wrong with it.
type claim struct {
	key      convert.ObjectKey
	object   object
	problems []convert.Problem
}

func (c *claim) isGood() bool { return len(c.problems) == 0 }

// contents is what one file holds.
type contents struct {
	claims []claim
	// problems are those of whole documents.
	problems []convert.Problem
	// isComplete: every document and object could be told apart, so what is not among the claims is not in the file.
	isComplete bool
}
