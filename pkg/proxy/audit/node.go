package audit

import (
	"cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// Node is what is known about a node: what its proxy says, and how its kernel compares.
//
// Its JSON names are an interface: scripts read them.
type Node struct {
	// Agrees: the proxy is healthy, the kernel holds what it should, and no other service proxy may answer first.
	Agrees bool `json:"inSync"`
	// Proxy is what the proxy says; null if none answers.
	Proxy  *status.Summary `json:"proxy"`
	Kernel Kernel          `json:"kernel"`
	// Refused are the objects that this program found to be wrong; never null. In their place the kernel is compared
	// with the versions that the proxy says are in force.
	Refused []Refused `json:"refused"`
	// Lacks says why nothing, or not everything, was compared although nothing is refused: there is no Service, or no
	// EndpointSlice that is read. Empty if everything was compared.
	Lacks string `json:"missing"`
}

// Judge sets Agrees, and reports whether a version of each refused object is in force.
func (n *Node) Judge() (isInForce bool) {
	isSaid, isInForce := true, true
	for _, one := range n.Refused {
		isSaid, isInForce = isSaid && one.Said, isInForce && one.InForce
	}
	n.Agrees = n.Kernel.Agrees && len(n.Kernel.OtherProxies) == 0 && isSaid &&
		n.Proxy != nil && n.Proxy.AgreesSince != nil && n.Proxy.LastError == ""
	return isInForce
}

// Refused is an object that cannot be right, or a file that cannot be read.
//
// Its JSON names are an interface: scripts read them.
type Refused struct {
	Object  string `json:"object"` // "Service shop/web"; the name of a file
	Problem string `json:"problem"`
	// Said: the proxy refuses it, too. InForce: its last good version is in force there; for a file, that of an object
	// that the file had.
	Said    bool `json:"reported"`
	InForce bool `json:"applied"`
}

// sentence says it to a person.
func (r *Refused) sentence() string {
	switch {
	case !r.Said:
		return r.Problem + "; the proxy does not say that it refuses it"
	case !r.InForce:
		return r.Problem + "; nothing of it is in force"
	}
	return r.Problem + "; the last good version is in force, as it should be"
}

// Refusals compares what this program refuses with what the proxy says that it refuses.
func Refusals(found []model.Finding, said []convert.Refusal) []Refused {
	isSaid, filesInForce := map[model.Subject]bool{}, map[string]bool{}
	for i := range said {
		isSaid[said[i].Subject()] = true
		filesInForce[said[i].File] = filesInForce[said[i].File] || said[i].InForce != nil
	}
	inForce := convert.LastGood(said)
	refused := []Refused{}
	for i := range found {
		finding := &found[i]
		if !finding.IsRefusal() {
			continue
		}
		subject := finding.Subject()
		_, isInForce := inForce[subject]
		refused = append(refused, Refused{
			Object: cmp.Or(finding.Object(), finding.File), Problem: finding.String(),
			Said: isSaid[subject], InForce: isInForce || finding.Kind == "" && filesInForce[finding.File],
		})
	}
	return refused
}
