package daemons_test

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"text/tabwriter"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// annotationRow has the bytes that a proxy received while one user changed one annotation once a second.
type annotationRow struct {
	nodes, changes int
	// first are the bytes received for the first key that requires Node labels, further the bytes for all further changes.
	first, further int64
}

var annotations []annotationRow

// BenchmarkAnnotation changes one Service's topology keys once a second, between two keys that require Node labels and
// no keys. The first key costs a list of all Nodes. A later change should cost no list.
func BenchmarkAnnotation(b *testing.B) {
	const nodes, changes = 1000, 30
	for b.Loop() {
		s := newSetup(b)
		for i := range nodes {
			name := fmt.Sprintf("other-%d", i)
			s.api.Create(b, objects.Node(name, map[string]string{
				"kubernetes.io/hostname": name, "kubernetes.io/arch": "amd64", "node.kubernetes.io/instance-type": "m7.large",
				"topology.kubernetes.io/zone": fmt.Sprintf("zone-%d", i%3), "example.com/rack": fmt.Sprintf("rack-%d", i%50),
			}))
		}
		d := startVicinity(b, s)
		d.waitIdle(b)
		keys := []string{"example.com/rack, *", "", "example.com/row, *", ""}
		before := d.received(b)
		s.annotate(b, keys[0])
		time.Sleep(5 * time.Second)
		row := annotationRow{nodes: nodes, changes: changes, first: d.received(b) - before}
		for change := range changes {
			s.annotate(b, keys[(change+1)%len(keys)]) // keys[0] is already set
			time.Sleep(time.Second)
		}
		row.further = d.received(b) - before - row.first
		d.stop(b)
		b.ReportMetric(float64(row.further)/float64(row.first), "x-first")
		annotations = append(annotations, row)
	}
}

// annotate writes the topology keys of the dialled Service.
func (s *setup) annotate(b *testing.B, keys string) {
	b.Helper()
	services := s.api.Admin.CoreV1().Services(namespace)
	service, err := services.Get(b.Context(), "probe", metav1.GetOptions{})
	must.Succeed(b, err)
	service.Annotations = map[string]string{policy.TopologyKeysAnnotation: keys}
	if keys == "" {
		service.Annotations = nil
	}
	_, err = services.Update(b.Context(), service, metav1.UpdateOptions{})
	must.Succeed(b, err)
}

// received returns the number of bytes that the daemon's node has received from other machines.
func (d *daemon) received(b *testing.B) (bytes int64) {
	b.Helper()
	found := false
	must.Succeed(b, d.node.Do(func() error {
		text, err := os.ReadFile("/proc/thread-self/net/dev")
		for line := range strings.Lines(string(text)) {
			if _, err := fmt.Sscanf(line, " eth0: %d", &bytes); err == nil {
				found = true
			}
		}
		return err
	}))
	if !found {
		b.Fatal("the node has no eth0")
	}
	return bytes
}

func printAnnotations(rows []annotationRow) {
	fmt.Print("\nOne annotation that changes once a second to another Node label key or none: bytes that one proxy received\n\n")
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 3, ' ', tabwriter.AlignRight)
	fmt.Fprintln(w, "Nodes\tfor the first key\tfurther changes\tfor all of them\tfurther/first\t")
	for _, row := range rows {
		fmt.Fprintf(w, "%d\t%d kB\t%d\t%d kB\t%.2f\t\n", row.nodes, row.first/1000, row.changes, row.further/1000,
			float64(row.further)/float64(row.first))
	}
	if err := w.Flush(); err != nil {
		panic(err)
	}
}
