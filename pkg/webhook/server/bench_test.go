package server

import (
	"bufio"
	"fmt"
	"net"
	"net/http"
	"runtime"
	"sync"
	"syscall"
	"testing"
	"time"

	apiserver "k8s.io/apiserver/pkg/admission"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/webhook/rules"
)

// speaker sends one review again and again on one connection. It costs little, for its time counts as the server's.
type speaker struct {
	connection net.Conn
	reader     *bufio.Reader
	request    []byte
}

func (r *running) speaker(t testing.TB, path string, body []byte) *speaker {
	connection := r.dial(t)
	head := fmt.Sprintf("POST %s?timeout=2s HTTP/1.1\r\n"+
		"Host: vicinity-webhook.vicinity-system.svc\r\nUser-Agent: kube-apiserver-admission\r\n"+
		"Content-Type: application/json\r\nAccept: application/json, */*\r\nContent-Length: %d\r\n\r\n", path, len(body))
	return &speaker{connection, bufio.NewReader(connection), append([]byte(head), body...)}
}

func (s *speaker) ask() error {
	if _, err := s.connection.Write(s.request); err != nil {
		return err
	}
	response, err := http.ReadResponse(s.reader, nil)
	if err != nil {
		return err
	}
	answer, err := readAnswer(response)
	if err != nil {
		return err
	}
	if answer.StatusCode != http.StatusOK || answer.Close {
		return fmt.Errorf("status %d, Connection: close is %v", answer.StatusCode, answer.Close)
	}
	return nil
}

// consumed is the processor time of the whole process.
func consumed(t testing.TB) time.Duration {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		t.Fatal(err)
	}
	return time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
}

// BenchmarkReviewsOverTLS has eight connections that are kept. reviews/s/core is what one core does, clients included;
// it is counted by processor time, so that it is the same on a machine that does something else besides.
func BenchmarkReviewsOverTLS(b *testing.B) {
	wrong := service(annotated(policy.TopologyKeysAnnotation, "a b,zone,zone"))
	zone := service(annotated(policy.TopologyKeysAnnotation, "topology.kubernetes.io/zone,*"))
	for _, c := range []struct {
		name, path string
		about      about
	}{
		{"Default", DefaultServicesPath, about{operation: apiserver.Create, object: service()}},
		{"Allow", ValidateServicesPath, about{operation: apiserver.Create, object: zone}},
		{"AllowUpdate", ValidateServicesPath, about{operation: apiserver.Update, object: zone, old: service()}},
		{"Deny", ValidateServicesPath, about{operation: apiserver.Create, object: wrong}},
	} {
		b.Run(c.name, func(b *testing.B) {
			r := start(b, knowing(rules.Settings{}, map[string]string{policy.DefaultTopologyModeAnnotation: "Auto"}), DefaultLimits(), nil)
			r.forget()
			body := c.about.review(b, c.path).body
			speakers := make([]*speaker, 8)
			for i := range speakers {
				speakers[i] = r.speaker(b, c.path, body)
			}
			b.ReportAllocs()
			b.SetBytes(int64(len(body)))
			b.ResetTimer()
			before := consumed(b)
			saturate(b, speakers, b.N)
			b.ReportMetric(float64(b.N)/(consumed(b)-before).Seconds(), "reviews/s/core")
		})
	}
}

// saturate shares that many reviews out among speakers.
func saturate(t testing.TB, speakers []*speaker, reviews int) {
	t.Helper()
	var running sync.WaitGroup
	for i, speaker := range speakers {
		share := (reviews + i) / len(speakers)
		running.Go(func() {
			for range share {
				if err := speaker.ask(); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	running.Wait()
}

func TestReviewsLeaveNothingInMemory(t *testing.T) {
	const reviews, mayGrow = 1000, 256 << 10
	r := start(t, knowing(rules.Settings{}, nil), DefaultLimits(), nil)
	r.forget()
	asked := about{operation: apiserver.Update, object: service(annotated(policy.TopologyKeysAnnotation, "a b")), old: service()}
	body := asked.review(t, ValidateServicesPath).body
	speakers := []*speaker{r.speaker(t, ValidateServicesPath, body), r.speaker(t, ValidateServicesPath, body)}
	saturate(t, speakers, reviews)
	before := heap()
	saturate(t, speakers, reviews)
	if after := heap(); after > before+mayGrow {
		t.Errorf("%d reviews left %d bytes", reviews, after-before)
	}
}

// heap is what is reachable.
func heap() uint64 {
	runtime.GC()
	runtime.GC()
	var stats runtime.MemStats
	runtime.ReadMemStats(&stats)
	return stats.HeapAlloc
}
