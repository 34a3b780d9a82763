package status

import (
	"net/http"
	"net/http/pprof"
	"net/url"
	"time"
)

// Pages is what the pages show. All fields must be set, except those that say whether a page is served.
type Pages struct {
	Metrics http.Handler // /metrics
	Mode    string       // /proxyMode: a word of kube-proxy's for what it programs; tests of clusters read it
	// Config returns what is in force, for /configz: by the name of each configuration, a value that encodes as JSON.
	Config func() map[string]any
	// Findings returns what does not work about objects, and since when, for /findings: a value that encodes as JSON. The
	// query selects some of it. The health address, which strangers can reach, has only numbers.
	Findings func(query url.Values) any
	// Summary returns what is in force and what is not, for /summary.
	Summary func() Summary
	// Flags are the command line's flags with their values, for /flagz.
	Flags     map[string]string
	Build     Build
	StartedAt time.Time        // when the process began
	Now       func() time.Time // the clock
	Logged    func(error)      // called with the reason why a page could not be made
	// Profiling serves /debug/pprof. A client that asks for a profile slows the process down, and sees its memory.
	Profiling bool
	// WithFlags and WithStatus serve /flagz and /statusz.
	WithFlags, WithStatus bool
}

// Build identifies the running program, for /flagz and /statusz.
type Build struct{ Name, Version, GoVersion string }

// Handler serves the pages.
func (p Pages) Handler() http.Handler {
	mux := http.NewServeMux()
	pages := map[string]http.HandlerFunc{
		"/metrics":      p.Metrics.ServeHTTP,
		"/healthz":      alive,
		"/healthz/ping": alive,
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
		pages["/debug/pprof/"] = pprof.Index // and each profile by its name
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

// alive says only that the server listens. The health address says whether the proxy is well.
func alive(w http.ResponseWriter, _ *http.Request) { writeText(w, "ok") }

// writeText writes a page. Only a client that has gone can make the write fail, and then no client reads an error.
func writeText(w http.ResponseWriter, text string) {
	w.Header().Set("Content-Type", "text/plain; charset=utf-8")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write([]byte(text))
}
