package drift

import (
	"cmp"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// Node is the state of a node: what its proxy reports, and how its kernel's tables differ from the desired ones.
//
// Its JSON names are an interface: scripts read them.
type Node struct {
	// InSync reports whether the proxy is healthy, the kernel has the desired tables, and no other service proxy may take
	// connections first.
	InSync bool `json:"inSync"`
	// Proxy is the state that the proxy reports; null if no proxy responds.
	Proxy  *status.Summary `json:"proxy"`
	Kernel Kernel          `json:"kernel"`
	// Invalid are the objects that this program found to be invalid; never null. The kernel is compared with the versions
	// that the proxy reports as active in their place.
	Invalid []InvalidObject `json:"refused"`
	// Missing is why the comparison is incomplete although no object is invalid: there is no Service, or no EndpointSlice
	// that is read. It is empty if everything was compared.
	Missing string `json:"missing"`
}

// Compare sets InSync, and reports whether every invalid object has an active version.
func (n *Node) Compare() (allActive bool) {
	allReported, allActive := true, true
	for _, object := range n.Invalid {
		allReported, allActive = allReported && object.ReportedByProxy, allActive && object.HasLastKnownGood
	}
	n.InSync = n.Kernel.InSync && len(n.Kernel.OtherProxies) == 0 && allReported &&
		n.Proxy != nil && n.Proxy.InSyncSince != nil && n.Proxy.LastError == ""
	return allActive
}

// InvalidObject is an invalid object, or a file that cannot be read.
//
// Its JSON names are an interface: scripts read them.
type InvalidObject struct {
	Object  string `json:"object"` // "Service shop/web"; the name of a file
	Problem string `json:"problem"`
	// ReportedByProxy reports whether the proxy rejects it, too. HasLastKnownGood reports whether its last known good
	// version is active there; for a file, that of an object that was in the file.
	ReportedByProxy  bool `json:"reported"`
	HasLastKnownGood bool `json:"applied"`
}

// text describes the object for people.
func (o *InvalidObject) text() string {
	switch {
	case !o.ReportedByProxy:
		return o.Problem + "; the proxy does not report it as invalid"
	case !o.HasLastKnownGood:
		return o.Problem + "; no version of it is active"
	}
	return o.Problem + "; its last known good version is active, as expected"
}

// InvalidObjects compares the objects that this program rejects with those that the proxy reports as rejected.
func InvalidObjects(found []model.Finding, rejections []convert.Rejection) []InvalidObject {
	isReported, activeFiles := map[model.Subject]bool{}, map[string]bool{}
	for i := range rejections {
		isReported[rejections[i].Subject()] = true
		activeFiles[rejections[i].File] = activeFiles[rejections[i].File] || rejections[i].Applied != nil
	}
	lastKnownGood := convert.LastKnownGoodValues(rejections)
	invalid := []InvalidObject{}
	for i := range found {
		finding := &found[i]
		if !finding.IsRejection() {
			continue
		}
		subject := finding.Subject()
		_, hasLastKnownGood := lastKnownGood[subject]
		invalid = append(invalid, InvalidObject{
			Object: cmp.Or(finding.Object(), finding.File), Problem: finding.String(),
			ReportedByProxy: isReported[subject], HasLastKnownGood: hasLastKnownGood || finding.Kind == "" && activeFiles[finding.File],
		})
	}
	return invalid
}
