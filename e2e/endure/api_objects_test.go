package endure_test

import (
	"context"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	networkingv1 "k8s.io/api/networking/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
)

const rackLabel = "example.com/rack"

// nodeOf maps each endpoint to the node in its EndpointSlice. In fact all of them are on one machine.
var nodeOf = map[string]string{"a": "node-1", "b": "node-1", "c": "node-2", "d": "node-3"}

var (
	// keyed is a Service for clients in the rack of its endpoints: c in rack-2 and d in rack-3.
	keyed = app{name: "keyed", number: 12, affinity: "None"}
	racks = map[string]string{"rack-2": "c", "rack-3": "d"}
)

// objects writes to the API server. Its methods return when the API server has accepted the write.
type objects struct {
	*setup
	client      kubernetes.Interface
	random      *rand.Rand
	changeCount int             // the number of changes
	exists      map[string]bool // Services that no client dials, and ServiceCIDRs
	replaced    app
	rack        string // of this node
}

// retry repeats a request until it succeeds. An API server that has just started rejects some requests, and a slow one
// may have executed a request for which it returned an error.
func (o *objects) retry(what string, request func(context.Context) error) {
	o.t.Helper()
	var err error
	for deadline := time.Now().Add(recovery); time.Now().Before(deadline); time.Sleep(50 * time.Millisecond) {
		isRetry := err != nil
		err = request(o.t.Context())
		if err == nil || isRetry && (apierrors.IsAlreadyExists(err) || apierrors.IsNotFound(err)) {
			return
		}
	}
	o.t.Fatalf("%s: %v", what, err)
}

// create creates a Service with EndpointSlices of both families.
func (o *objects) create(a app, endpoints ...string) {
	o.t.Helper()
	number := int32(30000 + a.number)
	service := &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: a.name},
		Spec: corev1.ServiceSpec{
			Type: corev1.ServiceTypeNodePort, SessionAffinity: corev1.ServiceAffinity(a.affinity),
			ClusterIP: a.ipv4().Addr().String(), ClusterIPs: []string{a.ipv4().Addr().String(), a.ipv6().Addr().String()},
			IPFamilyPolicy: new(corev1.IPFamilyPolicyRequireDualStack),
			Ports: []corev1.ServicePort{
				{Name: "tcp", Protocol: corev1.ProtocolTCP, Port: servicePort, NodePort: number},
				{Name: "udp", Protocol: corev1.ProtocolUDP, Port: servicePort, NodePort: number},
			},
		},
	}
	o.retry("create Service "+a.name, func(ctx context.Context) error {
		_, err := o.client.CoreV1().Services(metav1.NamespaceDefault).Create(ctx, service, metav1.CreateOptions{})
		return err
	})
	for _, slice := range o.slices(a, endpoints) {
		o.retry("create EndpointSlice "+slice.Name, func(ctx context.Context) error {
			_, err := o.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Create(ctx, slice, metav1.CreateOptions{})
			return err
		})
	}
}

// updateEndpoints makes the named servers the endpoints of a Service.
func (o *objects) updateEndpoints(a app, endpoints ...string) {
	o.t.Helper()
	for _, slice := range o.slices(a, endpoints) {
		o.retry("update EndpointSlice "+slice.Name, func(ctx context.Context) error {
			_, err := o.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).Update(ctx, slice, metav1.UpdateOptions{})
			return err
		})
	}
}

// slices returns an EndpointSlice for each family.
func (o *objects) slices(a app, endpoints []string) []*discoveryv1.EndpointSlice {
	var slices []*discoveryv1.EndpointSlice
	for _, family := range model.Families {
		slice := &discoveryv1.EndpointSlice{
			ObjectMeta: metav1.ObjectMeta{
				Name: a.name + "-" + strings.ToLower(family.String()), Labels: map[string]string{discoveryv1.LabelServiceName: a.name},
			},
			AddressType: discoveryv1.AddressType(family.String()),
			Ports: []discoveryv1.EndpointPort{
				{Name: new("tcp"), Protocol: new(corev1.ProtocolTCP), Port: new(int32(podPort))},
				{Name: new("udp"), Protocol: new(corev1.ProtocolUDP), Port: new(int32(podPort))},
			},
		}
		for _, name := range endpoints {
			addr := o.servers[name].IPv4
			if family == model.IPv6 {
				addr = o.servers[name].IPv6
			}
			slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{
				Addresses: []string{addr.String()}, NodeName: new(nodeOf[name]),
				Conditions: discoveryv1.EndpointConditions{Ready: new(true), Serving: new(true), Terminating: new(false)},
			})
		}
		slices = append(slices, slice)
	}
	return slices
}

// delete deletes a Service and its slices.
func (o *objects) delete(a app) {
	o.t.Helper()
	o.retry("delete Service "+a.name, func(ctx context.Context) error {
		return o.client.CoreV1().Services(metav1.NamespaceDefault).Delete(ctx, a.name, metav1.DeleteOptions{})
	})
	ofService := metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=" + a.name}
	o.retry("delete EndpointSlices of "+a.name, func(ctx context.Context) error {
		return o.client.DiscoveryV1().EndpointSlices(metav1.NamespaceDefault).DeleteCollection(ctx, metav1.DeleteOptions{}, ofService)
	})
}

// annotate sets a Service's topology keys.
func (o *objects) annotate(a app, keys string) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"annotations": {%q: %q}}}`, policy.TopologyKeysAnnotation, keys)
	o.retry("annotate Service "+a.name, func(ctx context.Context) error {
		_, err := o.client.CoreV1().Services(metav1.NamespaceDefault).Patch(
			ctx, a.name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// createNode creates a Node in a rack as its kubelet does, with the addresses of the existing node.
func (o *objects) createNode(name, rack string) {
	o.t.Helper()
	node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: name, Labels: map[string]string{rackLabel: rack}}}
	for _, addr := range []netip.Addr{o.node.IPv4, o.node.IPv6} {
		node.Status.Addresses = append(node.Status.Addresses, corev1.NodeAddress{Type: corev1.NodeInternalIP, Address: addr.String()})
	}
	o.retry("create Node "+name, func(ctx context.Context) error {
		_, err := o.client.CoreV1().Nodes().Create(ctx, node, metav1.CreateOptions{})
		return err
	})
}

func (o *objects) deleteNode(name string) {
	o.t.Helper()
	o.retry("delete Node "+name, func(ctx context.Context) error {
		return o.client.CoreV1().Nodes().Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// touchNode writes a label that is no topology key to another Node, as kubelets write to theirs.
func (o *objects) touchNode(node string) {
	o.t.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {"example.com/beat": "%d"}}}`, o.changeCount)
	o.retry("label Node "+node, func(ctx context.Context) error {
		_, err := o.client.CoreV1().Nodes().Patch(ctx, node, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// toggleServiceCIDR creates or deletes a range of ClusterIPs.
func (o *objects) toggleServiceCIDR() {
	o.t.Helper()
	const name = "more"
	ranges := o.client.NetworkingV1().ServiceCIDRs()
	if o.toggle(name) {
		cidr := &networkingv1.ServiceCIDR{
			ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: networkingv1.ServiceCIDRSpec{CIDRs: []string{"10.97.0.0/24", "fd00:97::/112"}},
		}
		o.retry("create ServiceCIDR "+name, func(ctx context.Context) error {
			_, err := ranges.Create(ctx, cidr, metav1.CreateOptions{})
			return err
		})
		return
	}
	o.retry("delete ServiceCIDR "+name, func(ctx context.Context) error {
		return ranges.Delete(ctx, name, metav1.DeleteOptions{})
	})
}

// toggle records that an object is created or deleted, and returns which of them.
func (o *objects) toggle(name string) (isCreated bool) {
	o.exists[name] = !o.exists[name]
	return o.exists[name]
}

// someEndpoints returns endpoints that always include a and b, which serve the clients that dial all the time.
func (o *objects) someEndpoints() []string {
	endpoints := []string{"a", "b", "c", "d"}[:2+o.random.IntN(3)]
	if o.random.IntN(2) == 0 {
		slices.Reverse(endpoints)
	}
	return endpoints
}

// change makes one change that no connection may notice.
func (o *objects) change() {
	o.t.Helper()
	o.changeCount++
	unrelated := app{name: fmt.Sprintf("unrelated-%d", o.changeCount%4), number: 100 + o.changeCount%4,
		affinity: []string{"None", "ClientIP"}[o.changeCount%2]}
	switch o.random.IntN(6) {
	case 0:
		o.updateEndpoints(web, o.someEndpoints()...)
	case 1:
		o.updateEndpoints(sticky, o.someEndpoints()...)
	case 2:
		o.toggleServiceCIDR()
	case 3:
		o.touchNode("node-2")
	default:
		switch {
		case !o.exists[unrelated.name]:
			o.toggle(unrelated.name)
			o.create(unrelated, o.someEndpoints()...)
		case o.random.IntN(2) == 0:
			o.annotate(unrelated, []string{rackLabel, rackLabel + ", *", "*"}[o.random.IntN(3)])
		default:
			o.toggle(unrelated.name)
			o.delete(unrelated)
		}
	}
}

// changeAll changes an object of each watched kind.
func (o *objects) changeAll() {
	o.t.Helper()
	o.changeCount++
	o.toggleServiceCIDR()
	o.touchNode("node-1")
	o.touchNode("node-2")
	o.updateEndpoints(web, o.someEndpoints()...)
	o.replaceService()
}

// replaceService deletes a Service and creates another one with the same name and other addresses.
func (o *objects) replaceService() {
	o.t.Helper()
	if o.replaced != (app{}) {
		o.delete(o.replaced)
	}
	o.replaced = app{name: "replaced", number: 20 + (o.replaced.number+1)%10, affinity: []string{"None", "ClientIP"}[o.random.IntN(2)]}
	o.create(o.replaced, o.someEndpoints()...)
}
