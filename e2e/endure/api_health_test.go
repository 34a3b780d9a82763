package endure_test

import (
	"encoding/json"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/e2e/site"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/wait"
)

// healthAddress is the proxy's default address for health checks.
const healthAddress = "127.0.0.1:10256"

// recovery is the timeout for anything that waits for client-go. It retries an API server that does not respond within
// seconds. But a storm also cuts watches as soon as they start, and after many of these client-go waits a minute before
// it tries again (tools/cache/reflector.go, v0.37). Then it receives everything at once, unless the machine is slow.
const recovery = time.Minute + waitTimeout

// mustRespond checks the status code of a page, and returns its body.
func (s *setup) mustRespond(path string, want int) (body string) {
	s.t.Helper()
	code, body, err := site.Get(s.node.Namespace, healthAddress, path)
	must.Succeed(s.t, err)
	if code != want {
		s.t.Errorf("%s: status %d, want %d: %s", path, code, want, body)
	}
	return body
}

// interruptedWatches has the resources whose watch the proxy reports as interrupted.
type interruptedWatches struct{ Healthz, Metrics []string }

var interruptedSeries = regexp.MustCompile(`(?m)^vicinity_watch_interrupted_timestamp_seconds\{resource="([^"]+)"\} `)

// interruptedWatches reads /healthz and the metrics. /healthz must report the proxy as healthy; its status code may differ, because
// it depends on the Node, too.
func (s *setup) interruptedWatches() (current interruptedWatches) {
	s.t.Helper()
	var page struct {
		Healthy       bool
		Interruptions []struct{ Resource, Reason string }
	}
	code, body, err := site.Get(s.node.Namespace, healthAddress, "/healthz")
	must.Succeed(s.t, err)
	must.Succeed(s.t, json.Unmarshal([]byte(body), &page))
	if !page.Healthy {
		s.t.Errorf("/healthz: status %d: %s", code, body)
	}
	for _, interruption := range page.Interruptions {
		if interruption.Reason == "" {
			s.t.Errorf("/healthz has no reason for the interrupted watch of %s: %s", interruption.Resource, body)
		}
		current.Healthz = append(current.Healthz, interruption.Resource)
	}
	_, text, err := site.Get(s.node.Namespace, metricsAddress, "/metrics")
	must.Succeed(s.t, err)
	for _, series := range interruptedSeries.FindAllStringSubmatch(text, -1) {
		current.Metrics = append(current.Metrics, series[1])
	}
	slices.Sort(current.Metrics)
	return current
}

// waitForInterruption waits until /healthz and the metrics report exactly these resources as interrupted.
func (s *setup) waitForInterruption(resources ...string) {
	s.t.Helper()
	want := interruptedWatches{resources, resources}
	var current interruptedWatches
	defer func() {
		if s.t.Failed() {
			s.t.Logf("interrupted resources (-want +got):\n%s", cmp.Diff(want, current))
		}
	}()
	wait.Within(s.t, recovery, "interrupted: ["+strings.Join(resources, " ")+"]", func() bool {
		current = s.interruptedWatches()
		return cmp.Equal(want, current)
	})
}

// checkLive is a step of traffic: a running proxy must always report that it is live.
func (s *apiSetup) checkLive() error {
	s.running.RLock()
	code, body, err := site.Get(s.node.Namespace, healthAddress, "/livez")
	s.running.RUnlock()
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("status %d: %s", code, body)
	}
	if err != nil {
		return fmt.Errorf("get /livez of a running proxy: %w", err)
	}
	s.livenessChecks.Add(1)
	time.Sleep(20 * time.Millisecond)
	return nil
}
