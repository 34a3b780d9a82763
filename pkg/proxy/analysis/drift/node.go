package drift

import (
	"cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Node is what is known about a node: what its proxy says, and how its kernel compares.
//
// Its JSON names are an interface: scripts read them.
type Node struct {
	// InSync: the proxy is healthy, the kernel holds what it should, and no other service proxy may answer first.
	InSync bool `json:"inSync"`
	// Proxy is what the proxy says; null if none answers.
	Proxy  *status.Summary `json:"proxy"`
	Kernel Kernel          `json:"kernel"`
	// Invalid are the objects that this program found to be wrong; never null. In their place the kernel is compared
	// with the versions that the proxy says are in force.
	Invalid []InvalidObject `json:"refused"`
	// Missing says why nothing, or not everything, was compared although nothing is refused: there is no Service, or no
	// EndpointSlice that is read. Empty if everything was compared.
	Missing string `json:"missing"`
}

// Compare sets InSync, and reports whether a version of each refused object is in force.
func (n *Node) Compare() (isInForce bool) {
	isSaid, isInForce := true, true
	for _, one := range n.Invalid {
		isSaid, isInForce = isSaid && one.ProxyReason, isInForce && one.HasLastKnownGood
	}
	n.InSync = n.Kernel.InSync && len(n.Kernel.OtherProxies) == 0 && isSaid &&
		n.Proxy != nil && n.Proxy.InSyncSince != nil && n.Proxy.LastError == ""
	return isInForce
}

// InvalidObject is an object that cannot be right, or a file that cannot be read.
//
// Its JSON names are an interface: scripts read them.
type InvalidObject struct {
	Object  string `json:"object"` // "Service shop/web"; the name of a file
	Problem string `json:"problem"`
	// ProxyReason: the proxy refuses it, too. InForce: its last good version is in force there; for a file, that of an object
	// that the file had.
	ProxyReason      bool `json:"reported"`
	HasLastKnownGood bool `json:"applied"`
}

// sentence says it to a person.
func (r *InvalidObject) sentence() string {
	switch {
	case !r.ProxyReason:
		return r.Problem + "; the proxy does not say that it refuses it"
	case !r.HasLastKnownGood:
		return r.Problem + "; nothing of it is in force"
	}
	return r.Problem + "; the last good version is in force, as it should be"
}

// InvalidObjects compares what this program refuses with what the proxy says that it refuses.
func InvalidObjects(found []model.Finding, rejections []convert.Rejection) []InvalidObject {
	isSaid, filesInForce := map[model.Subject]bool{}, map[string]bool{}
	for i := range rejections {
		isSaid[rejections[i].Subject()] = true
		filesInForce[rejections[i].File] = filesInForce[rejections[i].File] || rejections[i].Applied != nil
	}
	inForce := convert.LastKnownGoodValues(rejections)
	invalid := []InvalidObject{}
	for i := range found {
		finding := &found[i]
		if !finding.IsRejection() {
			continue
		}
		subject := finding.Subject()
		_, isInForce := inForce[subject]
		invalid = append(invalid, InvalidObject{
			Object: cmp.Or(finding.Object(), finding.File), Problem: finding.String(),
			ProxyReason: isSaid[subject], HasLastKnownGood: isInForce || finding.Kind == "" && filesInForce[finding.File],
		})
	}
	return invalid
}
