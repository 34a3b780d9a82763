package demand_test

import (
	"bufio"
	"cmp"
	"context"
	"crypto/tls"
	"fmt"
	"io"
	"log/slog"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/rest"
	"sigs.k8s.io/controller-runtime/pkg/client"

	"github.com/vicinity-proxy/vicinity/pkg/apis/vicinity/v1alpha1"
	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/received"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/demand"
)

const (
	measuredServices = 1000
	// rounds is the number of measured rounds after the first one, which hands out cursors.
	rounds = 2
	// perSecond is the rate of a node's connections to each of its Services; it is busyZoneFactor times as high in zone b.
	perSecond, busyZoneFactor = 0.2, 4
)

// proxiesVariable is the environment variable that makes the test program respond for all proxies. Its value is the number of
// Services that each node dials.
const proxiesVariable = "VICINITY_PROXIES_ASKED"

func TestMain(m *testing.M) {
	if services, isSet := os.LookupEnv(proxiesVariable); isSet {
		if err := serveForProxies(services); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// measuredNodes returns the number of nodes. VICINITY_NODES sets a smaller one for a short run.
func measuredNodes(b *testing.B) int {
	b.Helper()
	count, err := strconv.Atoi(cmp.Or(os.Getenv("VICINITY_NODES"), "5000"))
	must.Succeed(b, err)
	return count
}

// zoneOf returns the zone of a node: there are three zones of equal size.
func zoneOf(number int) string { return string(rune('a' + number%3)) }

// serviceName returns the name of a dialled Service. Each Namespace has ten.
func serviceName(number int) (namespace, name string) {
	return fmt.Sprintf("shop-%02d", number/10), fmt.Sprintf("web-%d", number%10)
}

// BenchmarkFiveThousandProxies measures the leader's cost for real pages over TLS, and the bytes of published demand
// that a proxy receives. The proxies run in another process.
func BenchmarkFiveThousandProxies(b *testing.B) {
	nodes := measuredNodes(b)
	zones := make([]string, nodes)
	c := &fakeCluster{api: newSite(b)}
	c.install(b, nil)
	for number := range zones {
		zones[number] = zoneOf(number)
	}
	c.fill(b, zones)
	for _, test := range []struct {
		name  string
		asked int  // Services dialled from each node
		isNew bool // nothing was published before
	}{
		{"1000 Services per node, steady", 1000, false},
		{"50 Services per node, nothing published", 50, true},
	} {
		b.Run(test.name, func(b *testing.B) {
			if test.isNew {
				c.deleteAllDemand(b)
			} else {
				c.publishAll(b)
			}
			port := startProxies(b, test.asked)
			for b.Loop() {
				c.measure(b, port, nodes)
			}
		})
	}
}

// fill writes Nodes, the proxies' endpoints and the Services concurrently.
func (c *fakeCluster) fill(b *testing.B, zones []string) {
	b.Helper()
	config := rest.CopyConfig(c.api.AdminConfig())
	config.QPS = -1
	writer, err := client.New(config, client.Options{})
	must.Succeed(b, err)
	all := nodesAndSlices(zones)
	for number := range measuredServices {
		namespace, name := serviceName(number)
		if number%10 == 0 {
			must.Succeed(b, writer.Create(b.Context(), objects.Namespace(namespace, nil, nil)))
		}
		service := objects.Service(namespace, name, objects.Annotated(policy.DemandSourceAnnotation, "measured"),
			objects.Annotated(policy.TopologyKeysAnnotation, corev1.LabelHostname+","+corev1.LabelTopologyZone+",*"),
			objects.Annotated(policy.MaxLoadAnnotation, "120%"))
		all = append(all, service)
	}
	concurrently(b, len(all), func(number int) error { return writer.Create(b.Context(), all[number]) })
}

// concurrently calls do for each number below count, several at a time.
func concurrently(b *testing.B, count int, do func(number int) error) {
	b.Helper()
	const workers = 16
	var working sync.WaitGroup
	for worker := range workers {
		working.Go(func() {
			for number := worker; number < count; number += workers {
				if err := do(number); err != nil {
					b.Error(err)
					return
				}
			}
		})
	}
	working.Wait()
	if b.Failed() {
		b.FailNow()
	}
}

// deleteAllDemand deletes all published demand.
func (c *fakeCluster) deleteAllDemand(b *testing.B) {
	b.Helper()
	for number := range measuredServices / 10 {
		namespace, _ := serviceName(10 * number)
		must.Succeed(b, c.client.DeleteAllOf(b.Context(), &v1alpha1.ServiceDemand{}, client.InNamespace(namespace)))
	}
}

// publishAll publishes the actual demand, as a previous leader would have.
func (c *fakeCluster) publishAll(b *testing.B) {
	b.Helper()
	c.deleteAllDemand(b)
	var services corev1.ServiceList
	reader, err := client.New(c.api.AdminConfig(), client.Options{})
	must.Succeed(b, err)
	must.Succeed(b, reader.List(b.Context(), &services))
	config := rest.CopyConfig(c.api.AdminConfig())
	config.QPS = -1
	writer, err := client.New(config, client.Options{Scheme: c.client.Scheme()})
	must.Succeed(b, err)
	concurrently(b, len(services.Items), func(number int) error {
		service := &services.Items[number]
		if service.Annotations[policy.DemandSourceAnnotation] == "" {
			return nil
		}
		const share = v1alpha1.PPM / (2 + busyZoneFactor)
		object := demandOf(service.Namespace, service.Name, nil)
		object.Zones = []v1alpha1.ZoneDemand{{Zone: "a", DemandPPM: share}, {Zone: "b", DemandPPM: busyZoneFactor * share},
			{Zone: "c", DemandPPM: share}}
		object.Labels = map[string]string{"app.kubernetes.io/managed-by": "vicinity-webhook"}
		object.OwnerReferences = []metav1.OwnerReference{{APIVersion: "v1", Kind: "Service", Name: service.Name, UID: service.UID}}
		return writer.Create(b.Context(), object)
	})
}

// measure runs a leader for some rounds.
func (c *fakeCluster) measure(b *testing.B, port uint16, nodes int) {
	b.Helper()
	var bytes received.Bytes
	defer c.countWatch(b, &bytes)()
	c.port = port
	r := c.start(b, "one", func(o *demand.Options) { o.Every = 0 })
	defer r.stop()
	wait.Within(b, 10*time.Minute, "the first round", func() bool { _, ended := r.lastRound(); return ended >= 1 })
	cpu, began, first, writes := cpuTime(b), time.Now(), bytes.Load(), total(r.reportedWrites())
	wait.Within(b, 20*time.Minute, "more rounds", func() bool {
		time.Sleep(10 * time.Millisecond)
		_, ended := r.lastRound()
		return ended >= 1+rounds
	})
	took := time.Since(began)
	var memory runtime.MemStats
	runtime.ReadMemStats(&memory)
	b.ReportMetric(100*(cpuTime(b)-cpu).Seconds()/took.Seconds(), "%-of-a-core")
	b.ReportMetric(float64(memory.HeapInuse)/1e6, "MB-heap")
	runtime.GC()
	runtime.ReadMemStats(&memory)
	b.ReportMetric(float64(memory.HeapAlloc)/1e6, "MB-live")
	b.ReportMetric(float64(nodes*rounds)/took.Seconds(), "pulls/s")
	b.ReportMetric(float64(bytes.Load()-first)/took.Hours()/1e6, "MB/h-by-proxy")
	b.ReportMetric(float64(total(r.reportedWrites())-writes)/took.Minutes(), "writes/min")
	b.ReportMetric(float64(r.waiting().Waiting), "waiting")
	b.ReportMetric(0, "ns/op")
	if round, _ := r.lastRound(); round.Reporting != nodes || len(round.Decided) != measuredServices {
		b.Errorf("%d of %d nodes report, and %d Services are decided, want all nodes and %d Services",
			round.Reporting, nodes, len(round.Decided), measuredServices)
	}
	if failed := r.failures(); failed > 0 {
		b.Errorf("%d failures:\n%s", failed, r.log)
	}
}

func total(counts map[string]int) (sum int) {
	for _, count := range counts {
		sum += count
	}
	return sum
}

// countWatch watches ServiceDemands as a proxy does, and counts the received bytes.
func (c *fakeCluster) countWatch(b *testing.B, bytes *received.Bytes) (stop func()) {
	b.Helper()
	watcher, err := client.NewWithWatch(bytes.Wrap(c.api.AdminConfig()), client.Options{Scheme: c.client.Scheme()})
	must.Succeed(b, err)
	var list v1alpha1.ServiceDemandList
	must.Succeed(b, watcher.List(b.Context(), &list))
	ctx, cancel := context.WithCancel(b.Context())
	options := &client.ListOptions{Raw: &metav1.ListOptions{ResourceVersion: list.ResourceVersion}}
	events, err := watcher.Watch(ctx, &v1alpha1.ServiceDemandList{}, options)
	must.Succeed(b, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for event := range events.ResultChan() {
			if event.Type == watch.Error && ctx.Err() == nil {
				b.Errorf("watch ended: %v", event.Object)
			}
		}
	}()
	return func() {
		cancel()
		events.Stop()
		<-ended
	}
}

// cpuTime returns the CPU time of this process.
func cpuTime(b *testing.B) time.Duration {
	b.Helper()
	var usage syscall.Rusage
	must.Succeed(b, syscall.Getrusage(syscall.RUSAGE_SELF, &usage))
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// startProxies starts the process that responds for all proxies, and returns its port.
func startProxies(b *testing.B, services int) uint16 {
	b.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), fmt.Sprintf("%s=%d", proxiesVariable, services))
	command.Stderr = os.Stderr
	input, err := command.StdinPipe()
	must.Succeed(b, err)
	output, err := command.StdoutPipe()
	must.Succeed(b, err)
	must.Succeed(b, command.Start())
	b.Cleanup(func() {
		must.Succeed(b, input.Close())
		must.Succeed(b, command.Wait())
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	must.Succeed(b, err)
	port, err := strconv.ParseUint(strings.TrimSpace(line), 10, 16)
	must.Succeed(b, err)
	return uint16(port)
}

// serveForProxies serves for all proxies until standard input ends. It first prints its port.
func serveForProxies(services string) error {
	count, err := strconv.Atoi(services)
	if err != nil {
		return err
	}
	server := httptest.NewUnstartedServer(&proxies{pulls: count, pulledAt: map[int]time.Time{}})
	if err := server.Listener.Close(); err != nil {
		return err
	}
	if server.Listener, err = net.Listen("tcp4", "0.0.0.0:0"); err != nil { //nolint:noctx,gosec // all of 127.0.0.0/8
		return err
	}
	server.Config.ErrorLog = slog.NewLogLogger(slog.DiscardHandler, slog.LevelError)
	server.TLS = &tls.Config{MinVersion: tls.VersionTLS13}
	server.StartTLS()
	fmt.Println(server.Listener.Addr().(*net.TCPAddr).Port)
	_, err = io.Copy(io.Discard, os.Stdin)
	return err
}

// proxies are proxies with random demand.
type proxies struct {
	pulls    int
	mutex    sync.Mutex
	pulledAt map[int]time.Time // last pull by node
}

// ServeHTTP responds for the proxy at the dialled address.
func (p *proxies) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	local := netip.MustParseAddrPort(r.Context().Value(http.LocalAddrContextKey).(net.Addr).String()).Addr().Unmap().As4()
	number, now := int(local[2])<<8|int(local[3]), time.Now()
	p.mutex.Lock()
	last, pulledBefore := p.pulledAt[number]
	p.pulledAt[number] = now
	p.mutex.Unlock()
	page := demandapi.Page{Cursor: "c", Counts: map[string]uint64{}}
	if pulledBefore && r.URL.Query().Get(demandapi.CursorParam) != "" {
		page.Duration = now.Sub(last)
		rate := perSecond
		if zoneOf(number) == "b" {
			rate *= busyZoneFactor
		}
		stride := measuredServices / p.pulls
		for service := number / 3 % stride; service < measuredServices; service += stride {
			namespace, name := serviceName(service)
			page.Counts[namespace+"/"+name] = randomCount(rate * page.Duration.Seconds())
		}
	}
	_, _ = w.Write(page.Text())
}

// randomCount returns a random number of connections with the given mean. For more than a few connections, the normal
// distribution that it uses is close to a Poisson distribution.
func randomCount(mean float64) uint64 {
	return uint64(max(0, math.Round(mean+math.Sqrt(mean)*rand.NormFloat64()))) //nolint:gosec // no secret
}
