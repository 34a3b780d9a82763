package boundedio

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestReadAllAndReadFileLimit(t *testing.T) {
	name := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(name, []byte("12345"), 0o600); err != nil {
		t.Fatal(err)
	}
	for limit, want := range map[int64]string{5: "12345", 6: "12345", 4: ""} {
		text, err := ReadAll(strings.NewReader("12345"), limit)
		if string(text) != want || errors.As(err, new(Error)) != (want == "") {
			t.Errorf("ReadAll with limit %d = %q, %v; want %q", limit, text, err, want)
		}
		if text, err = ReadFile(name, limit); string(text) != want || errors.As(err, new(Error)) != (want == "") {
			t.Errorf("ReadFile with limit %d = %q, %v; want %q", limit, text, err, want)
		}
	}
	const want = "read /dev/zero: larger than the limit of 1000 bytes"
	if text, err := ReadFile("/dev/zero", 1000); len(text) > 0 || err == nil || err.Error() != want {
		t.Errorf("ReadFile = %d bytes, %v; want error %q", len(text), err, want)
	}
	if _, err := ReadFile(name+"s", 4); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("ReadFile of a missing file: error %v, want %v", err, os.ErrNotExist)
	}
}

func TestGetLimits(t *testing.T) {
	done := make(chan struct{})
	mux := http.NewServeMux()
	mux.HandleFunc("/page", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("12345")) })
	mux.HandleFunc("/failed", func(w http.ResponseWriter, _ *http.Request) { http.Error(w, "why", http.StatusServiceUnavailable) })
	mux.HandleFunc("/moved", func(w http.ResponseWriter, r *http.Request) { http.Redirect(w, r, "/page", http.StatusFound) })
	mux.HandleFunc("/slow", func(w http.ResponseWriter, _ *http.Request) {
		for controller := http.NewResponseController(w); controller.Flush() == nil; time.Sleep(time.Millisecond) {
			_, _ = w.Write([]byte("x"))
		}
		close(done)
	})
	server := httptest.NewServer(mux)
	defer server.Close()
	for _, test := range []struct {
		page   string
		limit  int64
		status int
		body   string
		err    string
	}{
		{"/page", 5, http.StatusOK, "12345", ""}, {"/failed", 5, http.StatusServiceUnavailable, "why\n", ""},
		{"/page", 4, http.StatusOK, "", "larger than the limit of 4 bytes"}, {"/moved", 1000, http.StatusFound, "", ""},
		{"/slow", 1 << 30, http.StatusOK, "", "deadline exceeded"},
	} {
		status, body, err := Get(t.Context(), *server.Client(), server.URL+test.page, test.limit, time.Second)
		isExpectedErr := err == nil && test.err == "" || err != nil && test.err != "" && strings.Contains(err.Error(), test.err)
		if status != test.status || !isExpectedErr || test.status != http.StatusFound && string(body) != test.body {
			t.Errorf("%s: %d, %q, %v; want %+v", test.page, status, body, err, test)
		}
	}
	<-done // the client stops reading
}
