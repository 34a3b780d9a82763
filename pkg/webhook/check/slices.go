package check

import "github.com/vicinity-proxy/vicinity/pkg/webhook/rules"

// sliceServiceLabel is the label of an EndpointSlice that names its Service (discovery.k8s.io/v1).
const sliceServiceLabel = "kubernetes.io/service-name"

// readSlice reads an EndpointSlice, by which its Service is judged.
func (c *Files) readSlice(at place) {
	var slice rules.EndpointSlice
	if !c.decode(at, &slice, nil) {
		return
	}
	service := slice.Metadata.Namespace + "/" + slice.Metadata.Labels[sliceServiceLabel]
	c.slices[service] = append(c.slices[service], &slice)
	c.passedOver++
}
