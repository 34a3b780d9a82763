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
	s := newSetup(t)
	itself := s.addPod(s.local, "itself")
	onLocal, onSameZone := s.addPod(s.local, "on-local"), s.addPod(s.sameZone, "on-in-zone")
	onOtherZone, onNoZone, withoutNode := s.addPod(s.otherZone, "on-off-zone"), s.addPod(s.noZone, "on-no-zone"),
		s.addPod(s.otherZone, "no-node")
	series := map[*service]expectedSeries{
		s.add("same-node", allKeys, endpoint{pod: onLocal}):                     {"same_node", "kubernetes.io/hostname", "zone-a"},
		s.add("same-zone", allKeys, endpoint{pod: onSameZone}):                  {"same_zone", "topology.kubernetes.io/zone", "zone-a"},
		s.add("other-zone", allKeys, endpoint{pod: onOtherZone}):                {"other_zone", "*", "zone-b"},
		s.add("tenants-key", rackKey, endpoint{pod: onOtherZone}):               {"other_zone", "other", "zone-b"},
		s.add("without-keys", "*", endpoint{pod: onSameZone}):                   {"same_zone", "*", "zone-a"},
		s.add("without-zone", allKeys, endpoint{pod: onNoZone}):                 {"unknown", "*", ""},
		s.add("without-node", "*", endpoint{pod: withoutNode, hasNoNode: true}): {"unknown", "*", ""},
		s.add("hairpin", "kubernetes.io/hostname", endpoint{pod: itself}):       {"same_node", "kubernetes.io/hostname", "zone-a"},
	}
	s.write()
	s.startCounting(s.local)
	for _, node := range []*fabric.Node{s.sameZone, s.otherZone} {
		s.startCounting(node)
	}
	clients := map[*service]*fabric.Namespace{}
	for svc := range series {
		clients[svc] = s.client.Namespace
	}
	hairpin := s.services[len(s.services)-1]
	clients[hairpin] = itself.Namespace
	s.addReferenceCounters(s.client.Namespace)
	s.addReferenceCounters(itself.Namespace)

	made := map[*service]uint64{}
	for svc, client := range clients {
		for _, count := range s.request(client, svc, times) {
			made[svc] += count
		}
	}
	for svc := range series {
		svc.port = transferPort
	}
	s.write()
	for svc, client := range clients {
		for _, family := range model.Families {
			s.waitForTransfers(client, svc, family, made)
			conn, err := client.Dial("tcp", svc.clusterIP(family).String(), fabric.Timeout)
			must.Succeed(t, err)
			must.Succeed(t, fabric.Transfer(conn, megabytes*1_000_000, megabytes*1_000_000))
			must.Succeed(t, conn.Close())
			made[svc]++
		}
	}
	s.end()

	want := map[string]uint64{}
	for svc, labels := range series {
		want[connectionsOf(svc, labels)] += made[svc]
		want[totalOf(labels)] += made[svc]
	}
	wait.Equal(t, "the connections that clients made", want, func() map[string]uint64 {
		return s.nonzeroSeries(s.local, "vicinity_connections_total", "vicinity_service_connections_total")
	})
	for _, node := range []*fabric.Node{s.sameZone, s.otherZone} {
		if diff := cmp.Diff(map[string]uint64{}, s.nonzeroSeries(node, "vicinity_connections_total",
			"vicinity_traffic_bytes_total")); diff != "" {
			t.Errorf("counts on %s, which has only endpoints (-want +got):\n%s", node.Name, diff)
		}
	}
	s.expectBytes(series, s.referenceBytes(s.client.Namespace), s.referenceBytes(itself.Namespace))
}

// waitForTransfers waits until a Service's new port is applied. Each attempt is a connection.
func (s *setup) waitForTransfers(client *fabric.Namespace, svc *service, family model.Family, made map[*service]uint64) {
	s.t.Helper()
	wait.Success(s.t, "the transfer port", func() error {
		conn, err := client.Dial("tcp", svc.clusterIP(family).String(), fabric.Timeout)
		if err != nil {
			return err
		}
		made[svc]++
		defer conn.Close()
		return fabric.Transfer(conn, 1, 1)
	})
}

func connectionsOf(svc *service, labels expectedSeries) string {
	return fmt.Sprintf("vicinity_service_connections_total{locality=%q,namespace=\"shop\",outcome=\"replied\",service=%q,tier=%q}",
		labels.locality, svc.name, labels.tier)
}

func totalOf(labels expectedSeries) string {
	return fmt.Sprintf("vicinity_connections_total{locality=%q,outcome=\"replied\",tier=%q}", labels.locality, labels.tier)
}

// expectBytes compares the proxy's byte counts with those of the clients' kernels: by Service, in total, and between
// zones.
func (s *setup) expectBytes(series map[*service]expectedSeries, references ...map[string]uint64) {
	s.t.Helper()
	want := map[string]uint64{}
	for svc, labels := range series {
		for _, direction := range []string{"sent", "received"} {
			bytes := uint64(0)
			for _, reference := range references {
				bytes += reference[direction+" "+svc.name]
			}
			want[fmt.Sprintf("vicinity_service_traffic_bytes_total{direction=%q,locality=%q,namespace=\"shop\",service=%q,tier=%q}",
				direction, labels.locality, svc.name, labels.tier)] += bytes
			want[fmt.Sprintf("vicinity_traffic_bytes_total{direction=%q,locality=%q,tier=%q}", direction, labels.locality, labels.tier)] += bytes
			want[fmt.Sprintf("vicinity_zone_traffic_bytes_total{destination_zone=%q,direction=%q,source_zone=\"zone-a\"}",
				labels.zone, direction)] += bytes
		}
	}
	got := s.nonzeroSeries(s.local, "vicinity_service_traffic_bytes_total", "vicinity_traffic_bytes_total",
		"vicinity_zone_traffic_bytes_total")
	if diff := cmp.Diff(want, got); diff != "" {
		s.t.Errorf("bytes (-counted by the clients' kernels +by the proxy):\n%s", diff)
	}
	for series := range maps.Keys(got) {
		if strings.Contains(series, "tenants.example") {
			s.t.Errorf("a tenant's topology key is a label value: %s", series)
		}
	}
}
