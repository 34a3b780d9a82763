package daemons_test

import (
	"context"
	"flag"
	"os"
	"os/exec"
	"testing"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/clientcmd"
)

// million adds a cluster of a million endpoints. Creating it takes minutes, and 4 GiB for the API server.
var million = flag.Bool("million", false, "also start with 20,000 Services of 50 endpoints")

// startRow has the start times in one cluster, from the start of the program.
type startRow struct {
	services, endpoints int
	// listed is the time until a bare client has listed everything, connected the time until the first connection through
	// a Service.
	listed, connected []time.Duration
	memory, peak      int64 // of the idle proxy, and its maximum
}

var starts []startRow

// BenchmarkStart starts the proxy, and for comparison a client that lists the same objects and discards them.
func BenchmarkStart(b *testing.B) {
	const rounds = 5
	sizes := [][2]int{{10_000, 10}}
	if *million {
		sizes = append(sizes, [2]int{20_000, 50})
	}
	for b.Loop() {
		for _, size := range sizes {
			s := newSetup(b)
			row := startRow{services: size[0], endpoints: size[1]}
			s.endpoints = size[1]
			s.grow(b, size[0])
			for range rounds {
				row.listed = append(row.listed, s.list(b))
				d := startVicinity(b, s)
				row.connected = append(row.connected, d.ready)
				d.waitIdle(b)
				row.memory, row.peak = d.memory(b)
				d.stop(b)
			}
			starts = append(starts, row)
		}
	}
}

// list runs this program as a client on its own node, and returns its run time.
func (s *setup) list(b *testing.B) time.Duration {
	b.Helper()
	if s.lister == nil {
		s.lister = s.addNode(b, "lister")
	}
	cmd := exec.Command("/proc/self/exe", "-test.run", "^$")
	cmd.Env = append(os.Environ(), listKubeconfig+"="+s.kubeconfig(b, "lister"))
	started := time.Now()
	if _, err := s.lister.Run(cmd); err != nil {
		b.Fatal(err)
	}
	return time.Since(started)
}

// listKubeconfig makes this program a client that lists the objects of the API server in the named kubeconfig and ends.
const listKubeconfig = "VICINITY_BENCH_LIST"

// listAll lists Services and EndpointSlices concurrently, from the API server's watch cache, as controllers do.
func listAll(kubeconfig string) error {
	config, err := clientcmd.BuildConfigFromFlags("", kubeconfig)
	if err != nil {
		return err
	}
	config.ContentType, config.AcceptContentTypes = runtime.ContentTypeProtobuf, runtime.ContentTypeProtobuf
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	group, ctx := errgroup.WithContext(context.Background())
	options := metav1.ListOptions{ResourceVersion: "0"}
	group.Go(func() error {
		_, err := client.CoreV1().Services(metav1.NamespaceAll).List(ctx, options)
		return err
	})
	group.Go(func() error {
		_, err := client.DiscoveryV1().EndpointSlices(metav1.NamespaceAll).List(ctx, options)
		return err
	})
	return group.Wait()
}
