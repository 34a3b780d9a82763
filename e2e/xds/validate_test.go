package xds

import (
	"bufio"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"os/exec"
	"slices"
	"testing"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/encoding/protowire"

	"github.com/vicinity-proxy/vicinity/e2e/lab/binaries"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	clusterType    = "type.googleapis.com/envoy.config.cluster.v3.Cluster"
	assignmentType = "type.googleapis.com/envoy.config.endpoint.v3.ClusterLoadAssignment"
	listenerType   = "type.googleapis.com/envoy.config.listener.v3.Listener"
)

// validate validates responses with Envoy's types.
func validate(t *testing.T, responses [][]byte) []validation {
	t.Helper()
	built, err := programs()
	must.Succeed(t, err)
	cmd := exec.Command(built.Path(binaries.XDS, "xds"), "validate")
	input, err := cmd.StdinPipe()
	must.Succeed(t, err)
	output, err := cmd.StdoutPipe()
	must.Succeed(t, err)
	must.Succeed(t, cmd.Start())
	go func() {
		defer func() { _ = input.Close() }() // the reader notices missing lines
		for _, response := range responses {
			_, _ = fmt.Fprintln(input, base64.StdEncoding.EncodeToString(response))
		}
	}()
	decoder := json.NewDecoder(bufio.NewReader(output))
	all := make([]validation, len(responses))
	for i := range all {
		must.Succeed(t, decoder.Decode(&all[i]))
	}
	must.Succeed(t, cmd.Wait())
	return all
}

// rawClient is a client that reads and writes bytes.
type rawClient struct {
	t      *testing.T
	conn   *grpc.ClientConn
	stream grpc.ClientStream
}

type bytesCodec struct{}

func (bytesCodec) Marshal(v any) (mem.BufferSlice, error) {
	return mem.BufferSlice{mem.SliceBuffer(v.([]byte))}, nil
}

func (bytesCodec) Unmarshal(data mem.BufferSlice, v any) error {
	*v.(*[]byte) = data.Materialize()
	return nil
}

func (bytesCodec) Name() string { return "proto" }

// adsMethod and edsMethod are the methods that clients call.
const (
	adsMethod = "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
	edsMethod = "/envoy.service.endpoint.v3.EndpointDiscoveryService/StreamEndpoints"
)

func (f *fixture) newRawClient(method string) *rawClient {
	f.t.Helper()
	conn, err := grpc.NewClient(f.address, grpc.WithTransportCredentials(insecure.NewCredentials()),
		grpc.WithDefaultCallOptions(grpc.ForceCodecV2(bytesCodec{})))
	must.Succeed(f.t, err)
	r := &rawClient{t: f.t, conn: conn}
	f.t.Cleanup(func() { _ = conn.Close() })
	r.open(method)
	return r
}

func (r *rawClient) open(method string) {
	r.t.Helper()
	stream, err := r.conn.NewStream(r.t.Context(), &grpc.StreamDesc{ClientStreams: true, ServerStreams: true}, method,
		grpc.WaitForReady(true))
	must.Succeed(r.t, err)
	r.stream = stream
}

// requestOf encodes a DiscoveryRequest.
func requestOf(typeURL, nonce string, names ...string) []byte {
	var m []byte
	for _, name := range names {
		m = protowire.AppendString(protowire.AppendTag(m, 3, protowire.BytesType), name)
	}
	m = protowire.AppendString(protowire.AppendTag(m, 4, protowire.BytesType), typeURL)
	return protowire.AppendString(protowire.AppendTag(m, 5, protowire.BytesType), nonce)
}

func (r *rawClient) send(message []byte) {
	r.t.Helper()
	must.Succeed(r.t, r.stream.SendMsg(message))
}

func (r *rawClient) receive() []byte {
	r.t.Helper()
	var message []byte
	must.Succeed(r.t, r.stream.RecvMsg(&message))
	return message
}

// assignmentJSON has the format that protojson writes for a ClusterLoadAssignment.
type assignmentJSON struct {
	ClusterName string
	Endpoints   []struct {
		Locality struct{ Zone, SubZone string }
		Priority int
		Weight   int `json:"loadBalancingWeight"`
		Members  []struct {
			Weight   int `json:"loadBalancingWeight"`
			Endpoint struct {
				Address struct {
					SocketAddress struct {
						Address   string
						PortValue int
					}
				}
			}
		} `json:"lbEndpoints"`
	}
}

// TestEnvoysTypesAcceptEveryResponse validates responses for random Services, with clusters and listeners. It also checks
// the rules that clients enforce (gRPC's unmarshal_eds.go): priorities without a gap, no locality twice in one
// priority, no address twice at all, no weight of 0.
func TestEnvoysTypesAcceptEveryResponse(t *testing.T) {
	s := newFixture(t)
	random := rand.New(rand.NewPCG(36, 36))
	const services = 300
	var names []string
	for i := range services {
		service, endpoints := randomService(random, i)
		s.serveAs(service, endpoints...)
		names = append(names, fmt.Sprintf("web-%d.shop:80", i))
	}
	s.completeSync()
	p := s.newRawClient(adsMethod)
	var responses [][]byte
	for _, typeURL := range []string{clusterType, listenerType, assignmentType} {
		p.send(requestOf(typeURL, "", names...))
	}
	seen := map[string]int{}
	for seen[assignmentType] < services || seen[clusterType] < services || seen[listenerType] < services {
		response := p.receive()
		responses = append(responses, response)
		one := validate(t, [][]byte{response})[0]
		if one.Wrong != "" {
			t.Fatalf("%s: %s", one.Type, one.Wrong)
		}
		p.send(requestOf(one.Type, one.Nonce, names...))
		seen[one.Type] += len(one.Resources)
		if one.Type == assignmentType {
			for _, text := range one.Resources {
				checkAssignment(t, text)
			}
		}
	}
	if len(responses) < 3 {
		t.Errorf("%d responses, want at least 3", len(responses))
	}
}

// TestGRPCAcceptsEveryResponse checks that a real client for random Services rejects no response. Its calls get no
// replies.
func TestGRPCAcceptsEveryResponse(t *testing.T) {
	s := newFixture(t)
	random := rand.New(rand.NewPCG(36, 2))
	const services = 200
	for i := range services {
		service, endpoints := randomService(random, i)
		s.serveAs(service, endpoints...)
	}
	s.completeSync()
	c := s.client()
	for i := range services {
		target := fmt.Sprintf("xds:///web-%d.shop:80", i)
		c.do(command{Channel: target, Target: target, Calls: 1, Timeout: 1})
	}
	for _, name := range []string{"LDS", "CDS", "EDS"} {
		wait.Until(t, fmt.Sprintf("%s of %d Services was sent", name, services), func() bool {
			return s.counts.get("answered "+name) >= services
		})
		if rejected := s.counts.get("rejected " + name); rejected > 0 {
			t.Errorf("gRPC rejected %d responses of %s", rejected, name)
		}
	}
}

func randomService(random *rand.Rand, i int) (*model.Service, []endpoint) {
	service := webService()
	service.Name.Name = fmt.Sprintf("web-%d", i)
	service.ClusterIPs = []netip.Addr{netip.AddrFrom4([4]byte{10, 97, byte(i >> 8), byte(i)})}
	keys := []policy.Key{policy.Hostname, policy.Zone, policy.AnyNode}
	service.Topology.Keys = keys[random.IntN(4):]
	if len(service.Topology.Keys) > 0 && random.IntN(3) == 0 {
		service.Topology.MaxLoad = 100 + random.Uint64N(100)
	}
	service.InternalTrafficLocal = random.IntN(6) == 0
	var endpoints []endpoint
	for e := range random.IntN(12) {
		addr := netip.AddrFrom4([4]byte{10, 1, byte(i), byte(e)})
		if random.IntN(8) == 0 {
			addr = netip.AddrFrom16([16]byte{0xfd, 1, byte(i), 15: byte(e)})
		}
		zone := []string{"a", "b", "c", ""}[random.IntN(4)]
		endpoints = append(endpoints, endpoint{netip.AddrPortFrom(addr, uint16(1+random.IntN(60_000))),
			fmt.Sprintf("node-%d", 1+random.IntN(5)), zone})
	}
	return service, endpoints
}

func checkAssignment(t *testing.T, text []byte) {
	t.Helper()
	var assignment assignmentJSON
	must.Succeed(t, json.Unmarshal(text, &assignment))
	priorities, localities, addresses := []int{}, map[string]bool{}, map[string]bool{}
	for _, locality := range assignment.Endpoints {
		if !slices.Contains(priorities, locality.Priority) {
			priorities = append(priorities, locality.Priority)
		}
		id := fmt.Sprint(locality.Priority, locality.Locality)
		sum := 0
		for _, member := range locality.Members {
			address := fmt.Sprint(member.Endpoint.Address.SocketAddress)
			if addresses[address] {
				t.Errorf("%s has %s twice: %s", assignment.ClusterName, address, text)
			}
			addresses[address] = true
			sum += max(1, member.Weight)
		}
		if localities[id] || len(locality.Members) == 0 || locality.Weight != sum {
			t.Errorf("%s has a locality %s of weight %d, with members of total weight %d: %s",
				assignment.ClusterName, id, locality.Weight, sum, text)
		}
		localities[id] = true
	}
	slices.Sort(priorities)
	for i, priority := range priorities {
		if priority != i {
			t.Errorf("%s has the priorities %v, want no gap", assignment.ClusterName, priorities)
		}
	}
}

// TestEndpointsAloneHaveAStreamOfTheirOwn covers the EDS stream, on which requests need not contain the type.
func TestEndpointsAloneHaveAStreamOfTheirOwn(t *testing.T) {
	s := newFixture(t)
	s.serve(allKeys, endpoint{netip.MustParseAddrPort("10.1.0.1:8080"), "node-1", "a"})
	s.completeSync()
	p := s.newRawClient(edsMethod)
	p.send(requestOf("", "", "outbound|80||web.shop.svc.cluster.local"))
	got := validate(t, [][]byte{p.receive()})[0]
	if got.Wrong != "" || got.Type != assignmentType || len(got.Resources) != 1 {
		t.Fatalf("got %+v, want one ClusterLoadAssignment", got)
	}
	checkAssignment(t, got.Resources[0])
}
