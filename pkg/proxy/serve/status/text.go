package status

import (
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"time"
)

// warning is the first line of the two text pages, in Kubernetes' words.
const warning = "Warning: This endpoint is not meant to be machine parseable, has no formatting compatibility guarantees and is for " +
	"debugging purposes only."

// writeJSON writes a JSON page.
func (p Pages) writeJSON(w http.ResponseWriter, path string, page any) {
	body, err := json.Marshal(page)
	if err != nil {
		p.OnError(fmt.Errorf("%s: encode the page: %w", path, err))
		http.Error(w, "failed to encode the page; see the log", http.StatusInternalServerError)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("X-Content-Type-Options", "nosniff")
	_, _ = w.Write(body)
}

// flagz returns the page of the flags, sorted by name.
func flagz(name string, flags map[string]string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s flagz\n%s\n\n", name, warning)
	for _, flag := range slices.Sorted(maps.Keys(flags)) {
		fmt.Fprintf(&b, "%s=%s\n", flag, flags[flag])
	}
	return b.String()
}

// statusz returns the page of the process.
func (p Pages) statusz() string {
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s statusz\n%s\n\n", p.Build.Name, warning)
	fmt.Fprintf(&b, "Started: %s\n", p.StartedAt.UTC().Format(time.UnixDate))
	fmt.Fprintf(&b, "Up: %s\n", upTime(p.Now().Sub(p.StartedAt)))
	fmt.Fprintf(&b, "Go version: %s\n", p.Build.GoVersion)
	fmt.Fprintf(&b, "Binary version: %s\n", p.Build.Version)
	fmt.Fprintf(&b, "Paths: %s\n", strings.Join(p.paths(), " "))
	return b.String()
}

// paths returns the paths that /statusz lists.
func (p Pages) paths() []string {
	paths := []string{
		"/configz", "/findings", "/healthz", "/metrics", "/proxyMode", "/statusz", "/summary",
	}
	if p.WithFlags {
		paths = append(paths, "/flagz")
	}
	if p.Profiling {
		paths = append(paths, "/debug/pprof")
	}
	slices.Sort(paths)
	return paths
}

// upTime formats a duration as in Kubernetes' pages: 26 hr 03 min 09 sec.
func upTime(up time.Duration) string {
	seconds := int(up / time.Second)
	return fmt.Sprintf("%d hr %02d min %02d sec", seconds/3600, seconds/60%60, seconds%60)
}
