package webhook_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/e2e/lab/process"
	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
)

// measuredServer is a measured server.
type measuredServer struct {
	name     string
	address  string
	metrics  string // URL of its metrics; empty if it has none
	process  *process.Process
	tls      *tls.Config
	reviewed int // reviews so far
}

// ticksPerSecond is the unit of /proc/PID/stat. USER_HZ is 100 on all architectures that Go supports except Alpha
// (proc(5)).
const ticksPerSecond = 100

// cpuTime returns the sum of utime and stime of /proc/PID/stat: fields 14 and 15.
func (s *measuredServer) cpuTime(t testing.TB) time.Duration {
	t.Helper()
	text := s.proc(t, "stat")
	fields := strings.Fields(text[strings.LastIndex(text, ")")+1:]) // the name before it may contain any character
	var ticks int64
	for _, field := range fields[14-3 : 15-3+1] {
		number, err := strconv.ParseInt(field, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		ticks += number
	}
	return time.Duration(ticks) * time.Second / ticksPerSecond
}

// resident returns the server's resident memory, in bytes.
func (s *measuredServer) resident(t testing.TB) int64 {
	t.Helper()
	return s.memory(t, "VmRSS")
}

// peak returns the maximum of the server's resident memory.
func (s *measuredServer) peak(t testing.TB) int64 {
	t.Helper()
	return s.memory(t, "VmHWM")
}

// memory returns a field of /proc/PID/status, in bytes.
func (s *measuredServer) memory(t testing.TB, field string) int64 {
	t.Helper()
	for line := range strings.Lines(s.proc(t, "status")) {
		var kibibytes int64
		if _, err := fmt.Sscanf(line, field+": %d kB", &kibibytes); err == nil {
			return kibibytes << 10
		}
	}
	t.Fatalf("/proc/%d/status has no %s", s.process.PID(), field)
	return 0
}

func (s *measuredServer) proc(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("/proc", strconv.Itoa(s.process.PID()), file))
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// metric returns the values of metrics without labels.
func (s *measuredServer) metric(t testing.TB, names ...string) []float64 {
	t.Helper()
	page, err := get("http://" + s.metrics + "/metrics")
	must.Succeed(t, err)
	values := make([]float64, len(names))
	for i, name := range names {
		values[i], err = site.Metric(page, name)
		must.Succeed(t, err)
	}
	return values
}

// get returns the body at a URL, which must have status 200.
func get(url string) (string, error) {
	client := &http.Client{Timeout: 10 * time.Second}
	response, err := client.Get(url)
	if err != nil {
		return "", err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return "", fmt.Errorf("%s: %s", url, response.Status)
	}
	text, err := io.ReadAll(response.Body)
	return string(text), err
}

// loadAverage returns the machine's load average over one minute.
func loadAverage(t testing.TB) string {
	t.Helper()
	text, err := os.ReadFile("/proc/loadavg")
	if err != nil {
		t.Fatal(err)
	}
	minute, _, _ := strings.Cut(string(text), " ")
	return minute
}
