package topology_test

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/apiserver"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/received"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// The measured cluster and its hours. A kubelet writes its node's status every five minutes if nothing changed
// (nodeStatusReportFrequency).
const (
	beatsAnHour  = 12
	nodeTurnover = 100 // nodes per hour
	labelTries   = 40
	manyProxies  = 200 // concurrent proxies
	// churnInterval is the time between additions and removals of nodes: each change is published separately, as in a real hour.
	churnInterval = 1200 * time.Millisecond
)

// measuredNodes returns the number of nodes, which $VICINITY_NODES may reduce for a quick run.
func measuredNodes(b *testing.B) int {
	b.Helper()
	count, err := strconv.Atoi(cmp.Or(os.Getenv("VICINITY_NODES"), "5000"))
	must.Succeed(b, err)
	return count
}

// simulatedCluster is a cluster of many nodes.
type simulatedCluster struct {
	b     *testing.B
	admin *kubernetes.Clientset
	nodes []*corev1.Node
}

// view is one proxy's view of the cluster.
type view struct {
	received received.Bytes
	from     apiserver.NodeTopology
	updates  atomic.Int64
	racks    sync.Map // by node
	end      func()
}

// newView watches the cluster as a proxy does.
func (c *simulatedCluster) newView(source apiserver.NodeTopology) *view {
	c.b.Helper()
	v := &view{from: source}
	watcher, err := apiserver.New(v.received.Wrap(adminConfig()), apiserver.Options{
		View: convert.View{Node: c.nodes[0].Name}, NodeTopology: source, TopologyNamespace: namespace, Log: slog.New(slog.DiscardHandler),
	})
	must.Succeed(c.b, err)
	ctx, cancel := context.WithCancel(c.b.Context())
	ended := make(chan error, 1)
	go func() {
		ended <- watcher.Run(ctx, func(update convert.Update) {
			v.updates.Add(1)
			for name, node := range update.Change.Nodes {
				if node == nil {
					v.racks.Delete(name)
					continue
				}
				v.racks.Store(name, node.Labels[rack])
			}
		})
	}()
	v.end = sync.OnceFunc(func() {
		cancel()
		must.Succeed(c.b, <-ended)
	})
	c.b.Cleanup(v.end)
	return v
}

func (v *view) count() int {
	count := 0
	v.racks.Range(func(any, any) bool { count++; return true })
	return count
}

// forEachNode calls do for the nodes in a range of numbers, several at a time.
func (c *simulatedCluster) forEachNode(from, to int, do func(ctx context.Context, i int) error) {
	c.b.Helper()
	var running sync.WaitGroup
	var next atomic.Int64
	next.Store(int64(from))
	for range 16 {
		running.Go(func() {
			for i := int(next.Add(1)) - 1; i < to; i = int(next.Add(1)) - 1 {
				if err := do(context.WithoutCancel(c.b.Context()), i); err != nil {
					c.b.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
	if c.b.Failed() {
		c.b.FailNow()
	}
}

func (c *simulatedCluster) create(from, to int) {
	c.b.Helper()
	for len(c.nodes) < to {
		c.nodes = append(c.nodes, nil)
	}
	c.forEachNode(from, to, func(ctx context.Context, i int) error {
		node, err := c.admin.CoreV1().Nodes().Create(ctx, largeNode(i), metav1.CreateOptions{FieldManager: "kubelet"})
		if err != nil {
			return err
		}
		node.Status = statusOf(i, 0)
		c.nodes[i], err = c.admin.CoreV1().Nodes().UpdateStatus(ctx, node, metav1.UpdateOptions{FieldManager: "kubelet"})
		return err
	})
}

// beat makes every kubelet write its node's status once.
func (c *simulatedCluster) beat(number, nodes int) {
	c.b.Helper()
	c.forEachNode(0, nodes, func(ctx context.Context, i int) (err error) {
		c.nodes[i].Status = statusOf(i, number)
		c.nodes[i], err = c.admin.CoreV1().Nodes().UpdateStatus(ctx, c.nodes[i], metav1.UpdateOptions{FieldManager: "kubelet"})
		return err
	})
}

func (c *simulatedCluster) label(i int, key, value string) {
	c.b.Helper()
	patch := fmt.Sprintf(`{"metadata": {"labels": {%q: %q}}}`, key, value)
	_, err := c.admin.CoreV1().Nodes().Patch(c.b.Context(), c.nodes[i].Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
	must.Succeed(c.b, err)
	c.nodes[i], err = c.admin.CoreV1().Nodes().Get(c.b.Context(), c.nodes[i].Name, metav1.GetOptions{})
	must.Succeed(c.b, err)
}

// apiServerTime returns the CPU time that the API server has used, in seconds.
func (c *simulatedCluster) apiServerTime() float64 {
	c.b.Helper()
	page, err := c.admin.CoreV1().RESTClient().Get().AbsPath("/metrics").DoRaw(c.b.Context())
	must.Succeed(c.b, err)
	seconds, err := site.Metric(string(page), "process_cpu_seconds_total")
	must.Succeed(c.b, err)
	return seconds
}

// BenchmarkAnHour measures what one proxy receives in an hour, from Nodes and from TopologySlices, and the delay of a
// change.
func BenchmarkAnHour(b *testing.B) {
	c, count := newSimulatedCluster(b), measuredNodes(b)
	views := c.newViews(count)
	quiet := c.hour(views, "quiet", count, func(int) {})
	nextNode := count
	busy := c.hour(views, "busy", count, func(beat int) {
		// Nodes are added and removed all the time, and once in that hour a third of all nodes get another zone.
		for range nodeTurnover / beatsAnHour {
			c.create(nextNode, nextNode+1)
			time.Sleep(churnInterval)
			must.Succeed(b, c.admin.CoreV1().Nodes().Delete(b.Context(), c.nodes[nextNode].Name, metav1.DeleteOptions{}))
			time.Sleep(churnInterval)
			nextNode++
		}
		if beat == beatsAnHour/2 {
			for i := 1; i < count; i += 3 {
				c.label(i, corev1.LabelTopologyZone, "zone-new")
			}
		}
	})
	b.ReportMetric(quiet, "quiet-bytes/slices")
	b.ReportMetric(busy, "busy-bytes/slices")
	c.measureLag(views)
	b.ReportMetric(0, "ns/op")
}

// newSimulatedCluster returns a cluster with measuredNodes nodes and a publisher that has published them.
func newSimulatedCluster(b *testing.B) *simulatedCluster {
	b.Helper()
	config := install(b)
	unlimited := rest.CopyConfig(api.AdminConfig())
	unlimited.QPS = -1
	admin, err := kubernetes.NewForConfig(unlimited)
	must.Succeed(b, err)
	c := &simulatedCluster{b: b, admin: admin}
	c.create(0, measuredNodes(b))
	createServiceWithKeys(b, "racked", rack+", *")
	startPublisher(b, config, "publisher")
	wait.Until(b, "the Lease", func() bool {
		_, err := api.Admin.CoordinationV1().Leases(namespace).Get(b.Context(), "vicinity-topology", metav1.GetOptions{})
		return err == nil
	})
	b.ResetTimer()
	return c
}

// newViews returns two views: one from Nodes, and one from slices.
func (c *simulatedCluster) newViews(count int) []*view {
	c.b.Helper()
	var views []*view
	for _, from := range []apiserver.NodeTopology{apiserver.NodesTopology, apiserver.AutoTopology} {
		before := heapSize()
		v := c.newView(from)
		wait.Until(c.b, "all nodes", func() bool { return v.count() == count })
		c.b.Logf("%s: %d nodes take %d KiB of the heap, and %d bytes to list", from, count, (heapSize()-before)>>10, v.received.Load())
		views = append(views, v)
	}
	return views
}

// hour simulates an hour, and returns the ratio of the bytes received from Nodes to those from slices.
func (c *simulatedCluster) hour(views []*view, name string, count int, atBeat func(beat int)) float64 {
	c.b.Helper()
	var before [2][2]int64
	for i, v := range views {
		before[i] = [2]int64{v.received.Load(), v.updates.Load()}
	}
	began := time.Now()
	for beat := range beatsAnHour {
		c.beat(beat+1, count)
		atBeat(beat)
	}
	time.Sleep(3 * time.Second) // the last writes arrive
	passed := time.Since(began)
	var bytes [2]float64
	for i, v := range views {
		bytes[i] = float64(v.received.Load() - before[i][0])
		// The Lease is read at fixed intervals, so a real hour has more reads than this benchmark.
		if v.from == apiserver.AutoTopology {
			const every = 22.5 // seconds, on average
			bytes[i] += c.leaseBytes() * (time.Hour - passed).Seconds() / every
		}
		c.b.Logf("a %s hour, %s: %.0f kB, %d updates", name, v.from, bytes[i]/1000, v.updates.Load()-before[i][1])
	}
	c.b.Logf("a %s hour: Nodes take %.0f times the bytes of slices (it took %s)", name, bytes[0]/bytes[1], passed.Round(time.Second))
	return bytes[0] / bytes[1]
}

// leaseBytes returns the cost of one read of the publisher's Lease.
func (c *simulatedCluster) leaseBytes() float64 {
	c.b.Helper()
	var bytes received.Bytes
	client, err := kubernetes.NewForConfig(bytes.Wrap(adminConfig()))
	must.Succeed(c.b, err)
	read := func() {
		_, err := client.CoordinationV1().Leases(namespace).Get(c.b.Context(), "vicinity-topology", metav1.GetOptions{})
		must.Succeed(c.b, err)
	}
	read() // connects first
	before := bytes.Load()
	const times = 20
	for range times {
		read()
		time.Sleep(50 * time.Millisecond) // below the client's own rate limit
	}
	return float64(bytes.Load()-before) / times
}

// measureLag measures the time from a label's change until a proxy has it.
func (c *simulatedCluster) measureLag(views []*view) {
	c.b.Helper()
	for _, v := range views {
		var took []time.Duration
		for try := range labelTries {
			value := fmt.Sprintf("rack-%s-%d", v.from, try)
			began := time.Now()
			c.label(7, rack, value)
			for {
				if current, _ := v.racks.Load(c.nodes[7].Name); current == value {
					break
				}
				time.Sleep(time.Millisecond)
			}
			took = append(took, time.Since(began))
		}
		slices.Sort(took)
		c.b.Logf("%s: delay from a label change to a proxy: p50 %s, max of %d %s",
			v.from, took[len(took)/2].Round(time.Millisecond), len(took), took[len(took)-1].Round(time.Millisecond))
	}
}

// BenchmarkManyProxies measures what heartbeats cost the API server with many concurrent proxies.
func BenchmarkManyProxies(b *testing.B) {
	c, count := newSimulatedCluster(b), measuredNodes(b)
	c.beat(99, count) // the first beat allocates memory
	var cost []float64
	for i, from := range []apiserver.NodeTopology{"", apiserver.NodesTopology, apiserver.SlicesTopology} {
		var views []*view
		if from != "" {
			for range manyProxies {
				views = append(views, c.newView(from))
			}
			for _, v := range views {
				wait.Until(b, "all nodes", func() bool { return v.count() == count })
			}
		}
		time.Sleep(2 * time.Second)
		before := c.apiServerTime()
		c.beat(100+i, count)                                // a new time each, or nothing would change
		for last := before; c.apiServerTime()-last > 0.5; { // until everything is sent and it is idle
			last = c.apiServerTime()
			time.Sleep(2 * time.Second)
		}
		cost = append(cost, c.apiServerTime()-before)
		b.Logf("every node's heartbeat once, %d proxies watch %q: %.1f s of the API server's CPU time",
			len(views), from, cost[len(cost)-1])
		for _, v := range views {
			v.end()
		}
	}
	b.ReportMetric(cost[1]/cost[0], "Nodes/none")
	b.ReportMetric(cost[2]/cost[0], "slices/none")
	b.ReportMetric(0, "ns/op")
}

func heapSize() int64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return int64(stats.HeapAlloc)
}

// largeNode returns a Node with as many labels as in real clusters.
func largeNode(i int) *corev1.Node {
	node := nodeOf(fmt.Sprintf("node-%04d", i), "zone-"+string(rune('a'+i%3)), map[string]string{
		rack:                               fmt.Sprint("rack-", i/20),
		corev1.LabelTopologyRegion:         "region-1",
		corev1.LabelHostname:               fmt.Sprintf("node-%04d.compute.internal", i),
		corev1.LabelOSStable:               "linux",
		corev1.LabelArchStable:             "amd64",
		corev1.LabelInstanceTypeStable:     "m7.2xlarge",
		"node.example.com/pool":            "general-purpose",
		"topology.k8s.example.com/zone-id": fmt.Sprintf("r1-az%d", i%3),
	})
	for n := range 16 {
		node.Labels[fmt.Sprintf("feature.node.example.com/cpu-feature-%02d", n)] = "true"
	}
	return node
}

func statusOf(i, beat int) corev1.NodeStatus {
	capacity := corev1.ResourceList{
		"cpu": resource.MustParse("8"), "memory": resource.MustParse("32505856Ki"), "pods": resource.MustParse("110"),
		"ephemeral-storage": resource.MustParse("104845292Ki"),
	}
	status := corev1.NodeStatus{
		Capacity: capacity, Allocatable: capacity,
		Addresses: []corev1.NodeAddress{
			{Type: corev1.NodeInternalIP, Address: fmt.Sprintf("10.1.%d.%d", i/250, i%250+1)},
			{Type: corev1.NodeHostName, Address: fmt.Sprintf("node-%04d.compute.internal", i)},
		},
		NodeInfo: corev1.NodeSystemInfo{
			MachineID: fmt.Sprintf("%032x", i), KubeletVersion: "v1.37.1", OperatingSystem: "linux", Architecture: "amd64",
		},
	}
	heartbeat := metav1.NewTime(time.Date(2026, 11, 21, 8, 0, 0, 0, time.UTC).Add(time.Duration(beat) * 5 * time.Minute))
	for _, name := range []corev1.NodeConditionType{"MemoryPressure", "DiskPressure", "PIDPressure", "Ready"} {
		status.Conditions = append(status.Conditions, corev1.NodeCondition{
			Type: name, Status: "False", Reason: "KubeletHasSufficient", Message: "kubelet has sufficient of it available",
			LastHeartbeatTime: heartbeat,
		})
	}
	return status
}
