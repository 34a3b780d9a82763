package accounting_test

import (
	"fmt"
	"maps"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/fabric"
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

const (
	allKeys = "kubernetes.io/hostname,topology.kubernetes.io/zone,*"
	rackKey = "tenants.example/rack,*"
)

// expectedSeries has the labels with which a Service's connections are expected.
type expectedSeries struct{ locality, tier, zone string }

// TestThreeZones covers each locality and tier, over TCP, UDP and SCTP, both families, ClusterIPs, node ports, and from
// a pod to itself. The count of connections equals that of the clients, and the bytes equal those that the clients'
// kernels counted. The nodes of the endpoints count nothing.
func TestThreeZones(t *testing.T) {
	t.Parallel()
	const times, megabytes = 8, 10
	s := newTown(t)
	itself := s.addPod(s.local, "itself")
	onHere, onBeside := s.addPod(s.local, "on-local"), s.addPod(s.beside, "on-in-zone")
	onAcross, onNowhere, lost := s.addPod(s.across, "on-off-zone"), s.addPod(s.nowhere, "on-no-zone"), s.addPod(s.across, "no-node")
	series := map[*service]expectedSeries{
		s.add("same-node", allKeys, endpoint{pod: onHere}):                {"same_node", "kubernetes.io/hostname", "zone-a"},
		s.add("same-zone", allKeys, endpoint{pod: onBeside}):              {"same_zone", "topology.kubernetes.io/zone", "zone-a"},
		s.add("other-zone", allKeys, endpoint{pod: onAcross}):             {"other_zone", "*", "zone-b"},
		s.add("tenants-key", rackKey, endpoint{pod: onAcross}):            {"other_zone", "other", "zone-b"},
		s.add("without-keys", "*", endpoint{pod: onBeside}):               {"same_zone", "*", "zone-a"},
		s.add("without-zone", allKeys, endpoint{pod: onNowhere}):          {"unknown", "*", ""},
		s.add("without-node", "*", endpoint{pod: lost, isLost: true}):     {"unknown", "*", ""},
		s.add("hairpin", "kubernetes.io/hostname", endpoint{pod: itself}): {"same_node", "kubernetes.io/hostname", "zone-a"},
	}
	s.write()
	s.count(s.local)
	for _, on := range []*fabric.Node{s.beside, s.across} {
		s.count(on)
	}
	clients := map[*service]*fabric.Namespace{}
	for of := range series {
		clients[of] = s.client.Namespace
	}
	hairpin := s.services[len(s.services)-1]
	clients[hairpin] = itself.Namespace
	s.verify(s.client.Namespace)
	s.verify(itself.Namespace)

	made := map[*service]uint64{}
	for of, client := range clients {
		for _, count := range s.request(client, of, times) {
			made[of] += count
		}
	}
	for of := range series {
		of.port = transferPort
	}
	s.write()
	for of, client := range clients {
		for _, family := range model.Families {
			s.waitForTransfers(client, of, family, made)
			conn, err := client.Dial("tcp", of.clusterIP(family).String(), fabric.Timeout)
			must.Succeed(t, err)
			must.Succeed(t, fabric.Transfer(conn, megabytes*1_000_000, megabytes*1_000_000))
			must.Succeed(t, conn.Close())
			made[of]++
		}
	}
	s.end()

	want := map[string]uint64{}
	for of, at := range series {
		want[connectionsOf(of, at)] += made[of]
		want[inAll(at)] += made[of]
	}
	wait.Equal(t, "the connections that clients made", want, func() map[string]uint64 {
		return s.numbers(s.local, "vicinity_connections_total", "vicinity_service_connections_total")
	})
	for _, on := range []*fabric.Node{s.beside, s.across} {
		if diff := cmp.Diff(map[string]uint64{}, s.numbers(on, "vicinity_connections_total", "vicinity_traffic_bytes_total")); diff != "" {
			t.Errorf("%s, which has only endpoints, counts:\n%s", on.Name, diff)
		}
	}
	s.expectBytes(series, s.verified(s.client.Namespace), s.verified(itself.Namespace))
}

// waitForTransfers waits until a Service's new port is applied. Each attempt is a connection.
func (s *town) waitForTransfers(client *fabric.Namespace, of *service, family model.Family, made map[*service]uint64) {
	s.t.Helper()
	wait.Success(s.t, "the transfer port", func() error {
		conn, err := client.Dial("tcp", of.clusterIP(family).String(), fabric.Timeout)
		if err != nil {
			return err
		}
		made[of]++
		defer conn.Close()
		return fabric.Transfer(conn, 1, 1)
	})
}

func connectionsOf(of *service, at expectedSeries) string {
	return fmt.Sprintf("vicinity_service_connections_total{locality=%q,namespace=\"shop\",outcome=\"replied\",service=%q,tier=%q}",
		at.locality, of.name, at.tier)
}

func inAll(at expectedSeries) string {
	return fmt.Sprintf("vicinity_connections_total{locality=%q,outcome=\"replied\",tier=%q}", at.locality, at.tier)
}

// expectBytes compares the proxy's byte counts with those of the clients' kernels: by Service, in total, and between
// zones.
func (s *town) expectBytes(series map[*service]expectedSeries, judges ...map[string]uint64) {
	s.t.Helper()
	want := map[string]uint64{}
	for of, at := range series {
		for _, direction := range []string{"sent", "received"} {
			bytes := uint64(0)
			for _, judged := range judges {
				bytes += judged[direction+" "+of.name]
			}
			want[fmt.Sprintf("vicinity_service_traffic_bytes_total{direction=%q,locality=%q,namespace=\"shop\",service=%q,tier=%q}",
				direction, at.locality, of.name, at.tier)] += bytes
			want[fmt.Sprintf("vicinity_traffic_bytes_total{direction=%q,locality=%q,tier=%q}", direction, at.locality, at.tier)] += bytes
			want[fmt.Sprintf("vicinity_zone_traffic_bytes_total{destination_zone=%q,direction=%q,source_zone=\"zone-a\"}",
				at.zone, direction)] += bytes
		}
	}
	got := s.numbers(s.local, "vicinity_service_traffic_bytes_total", "vicinity_traffic_bytes_total", "vicinity_zone_traffic_bytes_total")
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("bytes (-counted by the clients' kernels +by the proxy):\n%s", diff)
	}
	for series := range maps.Keys(got) {
		if strings.Contains(series, "tenants.example") {
			s.t.Errorf("a tenant's topology key is a label value: %s", series)
		}
	}
}
