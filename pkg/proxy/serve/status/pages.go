package status

import (
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"
)

// Pages is the content of the pages. All fields must be set, except those that enable a page.
type Pages struct {
	Metrics http.Handler // /metrics
	Mode    string       // /proxyMode: kube-proxy's name of a mode; cluster tests read it
	// Config returns the current configuration for /configz: by name, values that encode as JSON.
	Config func() map[string]any
	// Findings returns the current findings, each with its start time, for /findings: a value that encodes as JSON. The
	// query selects some of them. The health address has only their number, because it is accessible to anyone.
	Findings func(query url.Values) any
	// Summary returns the content of /summary.
	Summary func() Summary
	// Flags are the command line's flags with their values, for /flagz.
	Flags     map[string]string
	Build     Build
	StartedAt time.Time        // start time of the process
	Now       func() time.Time // the clock
	OnError   func(error)      // called with the error if a page could not be encoded
	// Profiling enables /debug/pprof. A client that requests a profile slows the process down, and sees its memory.
	Profiling bool
	// WithFlags and WithStatus enable /flagz and /statusz.
	WithFlags, WithStatus bool
}

// Build identifies the running program, for /flagz and /statusz.
type Build struct{ Name, Version, GoVersion string }

// Handler serves the pages.
func (p Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	pages := map[string]http.HandlerFunc{
		"/metrics":      p.Metrics.ServeHTTP,
		"/healthz":      pingHandler,
		"/healthz/ping": pingHandler,
		"/proxyMode":    func(w http.ResponseWriter, _ *http.Request) { writeText(w, p.Mode) },
		"/configz":      func(w http.ResponseWriter, _ *http.Request) { p.writeJSON(w, "/configz", p.Config()) },
		"/findings": func(w http.ResponseWriter, r *http.Request) {
			p.writeJSON(w, "/findings", p.Findings(r.URL.Query()))
		},
		"/summary": func(w http.ResponseWriter, _ *http.Request) { p.writeJSON(w, "/summary", p.Summary()) },
	}
	if p.WithFlags {
		pages["/flagz"] = func(w http.ResponseWriter, _ *http.Request) { writeText(w, flagz(p.Build.Name, p.Flags)) }
	}
	if p.WithStatus {
		pages["/statusz"] = func(w http.ResponseWriter, _ *http.Request) { writeText(w, p.statusz()) }
	}
	if p.Profiling {
		pages["/debug/pprof/"] = pprof.Index // including each profile by its name
		pages["/debug/pprof/cmdline"] = pprof.Cmdline
		pages["/debug/pprof/profile"] = pprof.Profile
		pages["/debug/pprof/symbol"] = pprof.Symbol
		pages["/debug/pprof/trace"] = pprof.Trace
	}
	for path, page := range pages {
		mux.HandleFunc("GET "+path, page)
	}
	return mux
}

// pingHandler only shows that the server listens. The health address has the proxy's health.
func pingHandler(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") }

// writeText writes a page. The write fails only if the client has disconnected; then no client reads an error.
func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(text))
}
