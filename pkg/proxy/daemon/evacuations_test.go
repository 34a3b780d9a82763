package daemon

import (
	"context"
	"log/slog"
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/status"
)

// told writes the evacuations of a change: "node-a", "-node-b" for one that is over.
func told(change model.Change) string {
	var words []string
	for _, node := range slices.Sorted(maps.Keys(change.Evacuations)) {
		if change.Evacuations[node] == nil {
			node = "-" + node
		}
		words = append(words, node)
	}
	return strings.Join(words, " ")
}

// TestEvacuationsEndWhenTheyShould, whatever the sources say meanwhile: the proxy is told at that time, and health of this
// node too.
func TestEvacuationsEndWhenTheyShould(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		changes, heard := make(chan model.Change), make(chan string, 10)
		health := &status.Status{}
		f := aFeed(changes, slog.New(slog.DiscardHandler), health)
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		go func() {
			for {
				select {
				case change := <-changes:
					heard <- told(change)
				case <-ctx.Done():
					return
				}
			}
		}()
		start := time.Now()
		evacuation := func(after time.Duration) *model.Evacuation { return &model.Evacuation{Until: new(start.Add(after))} }
		deliver := func(evacuations map[string]*model.Evacuation) {
			f.deliver(ctx, convert.Update{Change: model.Change{Evacuations: evacuations}})
			synctest.Wait()
		}
		expect := func(when, want string, eligible bool) {
			t.Helper()
			var got []string
			for len(heard) > 0 {
				got = append(got, <-heard)
			}
			if text := strings.Join(got, "; "); text != want {
				t.Errorf("%s: the proxy is told %q, want %q", when, text, want)
			}
			answer := httptest.NewRecorder()
			health.Handler(time.Now).ServeHTTP(answer, httptest.NewRequest(http.MethodGet, "/healthz", nil))
			if isEvacuated := strings.Contains(answer.Body.String(), "evacuated"); isEvacuated == eligible {
				t.Errorf("%s: /healthz says %s", when, answer.Body)
			}
		}
		f.deliverAddrs(ctx, nil)
		f.deliver(ctx, convert.Update{Change: nodeChange(&model.Node{Name: "node-a"})})
		synctest.Wait()
		expect("at the start", "", true)
		deliver(map[string]*model.Evacuation{
			"node-a": evacuation(10 * time.Minute), "node-b": evacuation(20 * time.Minute), "node-c": {}, "node-d": evacuation(-time.Second),
		})
		expect("some begin, and one is over already", "node-a node-b node-c -node-d", false)
		time.Sleep(5 * time.Minute)
		synctest.Wait()
		expect("meanwhile", "", false)
		deliver(map[string]*model.Evacuation{"node-b": evacuation(15 * time.Minute), "node-e": evacuation(15 * time.Minute)})
		expect("one ends sooner", "node-b node-e", false)
		time.Sleep(5*time.Minute - time.Nanosecond)
		synctest.Wait()
		expect("just before the first end", "", false)
		time.Sleep(time.Nanosecond)
		synctest.Wait()
		expect("the first end", "-node-a", true)
		deliver(map[string]*model.Evacuation{"node-e": nil})
		expect("a label goes", "-node-e", true)
		time.Sleep(time.Hour)
		synctest.Wait()
		expect("an hour later", "-node-b", true)
		deliver(map[string]*model.Evacuation{"node-c": nil})
		expect("the one without an end goes", "-node-c", true)
	})
}
