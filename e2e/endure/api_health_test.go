package endure_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// healthAddress is where the proxy serves its health unless it is told otherwise.
const healthAddress = "127.0.0.1:10256"

// recovery is how long something may take that waits for client-go. An API server that does not answer is asked again within seconds.
// But a storm also cuts watches as soon as they begin, and after many of these client-go lets a minute pass before it tries again
// (tools/cache/reflector.go, v0.37). Then it hears everything at once, unless the machine is slow.
const recovery = time.Minute + patience

// within waits until something holds.
func within(t *testing.T, atMost time.Duration, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(atMost); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not after %s: %s", atMost, what)
		}
	}
}

// get asks a server on the node for a page.
func (s *site) get(address, path string) (code int, body string, err error) {
	conn, err := s.node.Dial("tcp", address, patience)
	if err != nil {
		return 0, "", err
	}
	defer func() { err = errors.Join(err, conn.Close()) }()
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		return 0, "", err
	}
	fmt.Fprintf(conn, "GET %s HTTP/1.0\r\n\r\n", path)
	response, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		return 0, "", err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	return response.StatusCode, string(text), err
}

// mustAnswer checks the status of a page.
func (s *site) mustAnswer(path string, want int) (body string) {
	s.t.Helper()
	code, body, err := s.get(healthAddress, path)
	must(s.t, err)
	if code != want {
		s.t.Errorf("%s answers %d, want %d: %s", path, code, want, body)
	}
	return body
}

// deaf are the resources about which the proxy says that it hears nothing.
type deaf struct{ Healthz, Metrics []string }

var interruptedSeries = regexp.MustCompile(`(?m)^vicinity_watch_interrupted_timestamp_seconds\{resource="([^"]+)"\} `)

// deaf asks the page of health and the metrics. The page must call the proxy healthy; load balancers may be told no for the Node's sake.
func (s *site) deaf() (now deaf) {
	s.t.Helper()
	var page struct {
		Healthy       bool
		Interruptions []struct{ Resource, Reason string }
	}
	code, body, err := s.get(healthAddress, "/healthz")
	must(s.t, err)
	must(s.t, json.Unmarshal([]byte(body), &page))
	if !page.Healthy {
		s.t.Errorf("/healthz answers %d: %s", code, body)
	}
	for _, interruption := range page.Interruptions {
		if interruption.Reason == "" {
			s.t.Errorf("/healthz does not tell why nothing is heard about %s: %s", interruption.Resource, body)
		}
		now.Healthz = append(now.Healthz, interruption.Resource)
	}
	_, text, err := s.get(metricsAddress, "/metrics")
	must(s.t, err)
	for _, series := range interruptedSeries.FindAllStringSubmatch(text, -1) {
		now.Metrics = append(now.Metrics, series[1])
	}
	slices.Sort(now.Metrics)
	return now
}

// awaitDeaf waits until health and metrics name these resources and no others.
func (s *site) awaitDeaf(resources ...string) {
	s.t.Helper()
	want := deaf{resources, resources}
	var now deaf
	defer func() {
		if s.t.Failed() {
			s.t.Logf("the resources that are not heard about (-want +got):\n%s", cmp.Diff(want, now))
		}
	}()
	within(s.t, recovery, "nothing is heard about ["+strings.Join(resources, " ")+"]", func() bool {
		now = s.deaf()
		return cmp.Equal(want, now)
	})
}

// live is a step of traffic: a proxy that runs must say that it is live, whatever happens.
func (s *apiSite) live() error {
	s.running.RLock()
	code, body, err := s.get(healthAddress, "/livez")
	s.running.RUnlock()
	if err == nil && code != http.StatusOK {
		err = fmt.Errorf("it answers %d: %s", code, body)
	}
	if err != nil {
		return fmt.Errorf("asking a proxy that runs for /livez: %w", err)
	}
	s.alive.Add(1)
	time.Sleep(20 * time.Millisecond)
	return nil
}
