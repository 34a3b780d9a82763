package daemon

import (
	"log/slog"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/serve/status"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// TestHealthReportsTheEvacuationOfThisNode and its end, but neither other nodes nor other demotions of this node.
func TestHealthReportsTheEvacuationOfThisNode(t *testing.T) {
	changes, health := make(chan model.Change, 10), &status.Status{}
	f := newTestFeed(changes, slog.New(slog.DiscardHandler), health)
	f.barrier.deliverAddrs(t.Context(), nil)
	demotionChange := func(node string, reason model.DemotionReason, demotion *model.Demotion) model.Change {
		return model.Change{Demotions: map[model.DemotionKey]*model.Demotion{{Node: node, Reason: reason}: demotion}}
	}
	end := time.Date(2026, 11, 22, 18, 0, 0, 0, time.UTC)
	for _, step := range []struct {
		desc   string
		change model.Change
		want   string // in the page; with "no" before it: not in the page
	}{
		{"at the start", nodeChange(&model.Node{Name: "node-a"}), "no evacuated"},
		{"another node is evacuated", demotionChange("node-b", model.Evacuated, &model.Demotion{}), "no evacuated"},
		{"this node is evacuated", demotionChange("node-a", model.Evacuated, &model.Demotion{}), "until the label"},
		{"it gets a deadline", demotionChange("node-a", model.Evacuated, &model.Demotion{Until: &end}), "until 2026-11-22 18:00 UTC"},
		{"it is demoted for another reason", demotionChange("node-a", model.Unreachable, &model.Demotion{}), "until 2026"},
		{"its evacuation ends", demotionChange("node-a", model.Evacuated, nil), "no evacuated"},
	} {
		f.deliver(t.Context(), convert.Update{Change: step.change})
		response := httptest.NewRecorder()
		health.Handler(time.Now).ServeHTTP(response, httptest.NewRequest(http.MethodGet, "/healthz", nil))
		unwanted, isUnwanted := strings.CutPrefix(step.want, "no ")
		if page := response.Body.String(); isUnwanted && strings.Contains(page, unwanted) || !isUnwanted && !strings.Contains(page, step.want) {
			t.Errorf("%s: /healthz says %s, want %s", step.desc, page, step.want)
		}
	}
}
