package demand_test

import (
	"context"
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/logs"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/sent"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand/pull"
)

// fakeCluster is a cluster of nodes with one server on loopback in place of their proxies: node number n is at
// 127.64.0.n. An API server rejects loopback addresses of endpoints, so there it is 10.64.0.n.
type fakeCluster struct {
	api    *site.Site
	client client.Client
	port   uint16

	mutex    sync.Mutex
	demand   map[string]map[string]float64 // connections per second by node and Service
	pulledAt map[string]time.Time          // last pull by node
}

// nodeAddr returns the address of a node at the API server.
func nodeAddr(number int) netip.Addr {
	return netip.AddrFrom4([4]byte{10, 64, byte(number >> 8), byte(number)})
}

// nodeAt returns the node at an address on loopback.
func nodeAt(addr netip.Addr) string {
	bytes := addr.Unmap().As4()
	return nodeName(int(bytes[2])<<8 | int(bytes[3]))
}

func nodeName(number int) string { return fmt.Sprintf("node-%04d", number) }

// dialLoopback dials the server that stands for the proxies.
func dialLoopback(ctx context.Context, network, address string) (net.Conn, error) {
	return (&net.Dialer{}).DialContext(ctx, network, strings.Replace(address, "10.", "127.", 1))
}

// newFakeCluster starts an API server with the objects of the component, writes Nodes in the given zones, and starts
// their proxies.
func newFakeCluster(t testing.TB, zones ...string) *fakeCluster {
	t.Helper()
	c := &fakeCluster{api: newSite(t), demand: map[string]map[string]float64{}, pulledAt: map[string]time.Time{}}
	c.install(t, zones)
	server := httptest.NewUnstartedServer(http.HandlerFunc(c.serve))
	must.Succeed(t, server.Listener.Close())
	var err error
	server.Listener, err = net.Listen("tcp4", "0.0.0.0:0") //nolint:noctx,gosec // all of 127.0.0.0/8
	must.Succeed(t, err)
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	t.Cleanup(server.Close)
	c.port = uint16(server.Listener.Addr().(*net.TCPAddr).Port)
	return c
}

// install applies the component, and writes Nodes and the endpoints of their proxies.
func (c *fakeCluster) install(t testing.TB, zones []string) {
	t.Helper()
	c.client = installComponent(t, c.api)
	c.api.Create(t, nodesAndSlices(zones)...)
}

// installComponent applies the component, and returns a client for ServiceDemands.
func installComponent(t testing.TB, api *site.Site) client.Client {
	t.Helper()
	_, err := api.Shell(t.Context(), `
		kubectl apply -f manifests/access.yaml -f manifests/webhook/base/access.yaml
		cd manifests/webhook/components/demand
		kubectl apply -f servicedemands.yaml -f access.yaml -f proxies.yaml
		kubectl wait --for condition=Established customresourcedefinition servicedemands.vicinity.dev`)
	must.Succeed(t, err)
	scheme := runtime.NewScheme()
	must.Succeed(t, v1alpha1.AddToScheme(scheme))
	demandClient, err := client.New(api.AdminConfig(), client.Options{Scheme: scheme})
	must.Succeed(t, err)
	return demandClient
}

func newSite(t testing.TB) *site.Site {
	t.Helper()
	return site.New(t, site.Config{})
}

// nodesAndSlices returns Nodes in the given zones, and the EndpointSlices of their proxies.
func nodesAndSlices(zones []string) []client.Object {
	const perSlice = 1000 // the limit of an EndpointSlice
	var slice *discoveryv1.EndpointSlice
	var all []client.Object
	for number, zone := range zones {
		node := &corev1.Node{ObjectMeta: metav1.ObjectMeta{Name: nodeName(number), Labels: map[string]string{}}}
		if zone != "" {
			node.Labels[corev1.LabelTopologyZone] = zone
		}
		all = append(all, node)
		if slice == nil {
			slice = objects.Slice("kube-system", fmt.Sprint("vicinity-proxy-", number), "vicinity-proxy")
		}
		slice.Endpoints = append(slice.Endpoints, discoveryv1.Endpoint{Addresses: []string{nodeAddr(number).String()}, NodeName: new(node.Name)})
		if len(slice.Endpoints) == perSlice || number == len(zones)-1 {
			all = append(all, slice)
			slice = nil
		}
	}
	return all
}

// serve responds with the demand page of the proxy at the dialled address.
func (c *fakeCluster) serve(w http.ResponseWriter, r *http.Request) {
	local, err := netip.ParseAddrPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String())
	if err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	c.mutex.Lock()
	defer c.mutex.Unlock()
	node, now := nodeAt(local.Addr()), time.Now()
	rates, isKnown := c.demand[node]
	if !isKnown {
		http.Error(w, "no such proxy", http.StatusServiceUnavailable)
		return
	}
	page := demandapi.Page{Cursor: "c", Counts: map[string]uint64{}}
	if last, pulledBefore := c.pulledAt[node]; pulledBefore && r.URL.Query().Get(demandapi.CursorParam) != "" {
		page.Duration = now.Sub(last)
		for service, rate := range rates {
			page.Counts[service] = uint64(rate * page.Duration.Seconds())
		}
	}
	c.pulledAt[node] = now
	_, _ = w.Write(page.Text())
}

// setDemand sets the connections per second of nodes to a Service, starting with the first node. Other nodes do not
// respond.
func (c *fakeCluster) setDemand(service string, rates ...float64) {
	c.mutex.Lock()
	defer c.mutex.Unlock()
	for number, rate := range rates {
		if c.demand[nodeName(number)] == nil {
			c.demand[nodeName(number)] = map[string]float64{}
		}
		c.demand[nodeName(number)][service] = rate
	}
}

// start starts a replica with the permissions of the webhook's account.
func (c *fakeCluster) start(t testing.TB, identity string, edits ...func(*demand.Options)) *replica {
	t.Helper()
	options := demand.Options{Puller: pull.New(c.port, dialLoopback), Every: pullInterval}
	for _, edit := range edits {
		edit(&options)
	}
	return startReplica(t, c.api, identity, options)
}

// startReplica starts a replica with the permissions of the webhook's account.
func startReplica(t testing.TB, api *site.Site, identity string, options demand.Options) *replica {
	t.Helper()
	r := &replica{log: logs.New(t, identity), writes: sent.NewCounter("servicedemands"), reported: map[string]int{}}
	options.Namespace, options.Identity, options.Account = system, identity, account
	options.Proxies = types.NamespacedName{Namespace: "kube-system", Name: "vicinity-proxy"}
	options.Log, options.Observer = slog.New(slog.NewTextHandler(r.log, nil)), r
	config := api.Account(t, system, "vicinity-webhook")
	const protobuf = "application/vnd.kubernetes.protobuf" // as in our programs
	config.ContentType, config.AcceptContentTypes = protobuf, protobuf+",application/json"
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 1)
	go func() { ended <- demand.Run(ctx, r.writes.Wrap(config), options) }()
	r.stop = sync.OnceFunc(func() {
		cancel()
		must.Succeed(t, <-ended)
	})
	t.Cleanup(r.stop)
	return r
}

// withDemand returns the annotations for a list of clients; a last item "measured" means the demand source instead of a
// client. It returns none for an empty list.
func withDemand(list string) (changes []func(*corev1.Service)) {
	clients, isMeasured := strings.CutSuffix(list, policy.Measured)
	if clients = strings.TrimSuffix(clients, ", "); clients != "" {
		changes = append(changes, objects.Annotated(policy.ClientsAnnotation, clients))
	}
	if isMeasured {
		changes = append(changes, objects.Annotated(policy.DemandSourceAnnotation, policy.Measured))
	}
	return changes
}

// service creates a Service with a load bound and the demand of withDemand.
func (c *fakeCluster) service(t testing.TB, namespace, name, clients string) *corev1.Service {
	t.Helper()
	changes := []func(*corev1.Service){
		objects.Annotated(policy.TopologyKeysAnnotation, corev1.LabelHostname+","+corev1.LabelTopologyZone+",*"),
		objects.Annotated(policy.MaxLoadAnnotation, "120%"),
	}
	service := objects.Service(namespace, name, append(changes, withDemand(clients)...)...)
	c.api.Create(t, service)
	return service
}

// object returns the ServiceDemand of a Service in shop; nil if there is none.
func (c *fakeCluster) object(t testing.TB, name string) *v1alpha1.ServiceDemand {
	t.Helper()
	return objectOf(t, c.client, name)
}

func objectOf(t testing.TB, from client.Reader, name string) *v1alpha1.ServiceDemand {
	t.Helper()
	var object v1alpha1.ServiceDemand
	err := from.Get(t.Context(), types.NamespacedName{Namespace: "shop", Name: name}, &object)
	if client.IgnoreNotFound(err) != nil {
		t.Fatal(err)
	}
	if err != nil {
		return nil
	}
	return &object
}

// waitFor waits until isRight accepts the ServiceDemand of shop/web, and returns it.
func (c *fakeCluster) waitFor(t testing.TB, isRight func(*v1alpha1.ServiceDemand) bool) *v1alpha1.ServiceDemand {
	t.Helper()
	var object *v1alpha1.ServiceDemand
	wait.Until(t, "the ServiceDemand shop/web", func() bool {
		object = c.object(t, "web")
		return object != nil && isRight(object)
	})
	return object
}

// zoneDemand returns the demand of a zone.
func zoneDemand(object *v1alpha1.ServiceDemand, zone string) uint32 {
	for _, z := range object.Zones {
		if z.Zone == zone {
			return z.DemandPPM
		}
	}
	return 0
}
