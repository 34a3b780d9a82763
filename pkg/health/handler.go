package health

import (
	"encoding/json"
	"net/http"
	"time"
)

// Handler serves /healthz, /livez and /readyz: 200 if it is so and 503 if not, each with the reason as JSON. Now is the clock.
//
// /healthz and /livez say the same. In kube-proxy they differ for a node that is about to be removed, see page.
func (s *Status) Handler(now func() time.Time) http.Handler {
	health := func(w http.ResponseWriter, _ *http.Request) {
		verdict := s.Verdict(now())
		answer(w, verdict.Healthy, healthPage(verdict))
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /healthz", health)
	mux.HandleFunc("GET /livez", health)
	mux.HandleFunc("GET /readyz", func(w http.ResponseWriter, _ *http.Request) {
		verdict := s.Verdict(now())
		answer(w, verdict.Ready, readinessPage(verdict))
	})
	return mux
}

// answer writes a page. Only an asker that has gone can make the write fail, and then there is nobody to tell.
func answer(w http.ResponseWriter, well bool, page any) {
	body, err := json.MarshalIndent(page, "", "  ")
	if err != nil {
		http.Error(w, "encoding the page: "+err.Error(), http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	if !well {
		w.WriteHeader(http.StatusServiceUnavailable)
	}
	_, _ = w.Write(append(body, '\n'))
}
