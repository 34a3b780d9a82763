// Package boundedio reads what others wrote, but only up to a size. A file, a server or another process may have no end.
package boundedio

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Error says that a text was not read, because it has more bytes than a limit.
type Error struct{ Limit int64 }

// Error names the limit.
func (e Error) Error() string {
	return fmt.Sprintf("it has more than %d bytes, the most that are read", e.Limit)
}

// ReadAll reads to the end. It fails with an Error if that is more than limit bytes.
func ReadAll(from io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(from, limit+1))
	if err == nil && int64(len(text)) > limit {
		err = Error{limit}
	}
	if err != nil {
		return nil, err
	}
	return text, nil
}

// ReadFile reads a file. It fails if the file has more than limit bytes.
func ReadFile(name string, limit int64) ([]byte, error) {
	file, err := os.Open(name)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }() // nothing was written that closing could lose
	text, err := ReadAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

// Get asks a server for a page. It fails if the page has more than limit bytes, or takes longer than timeout, and follows
// no redirection: a server must not choose who is asked next, with the client's credentials.
func Get(ctx context.Context, client http.Client, url string, limit int64, timeout time.Duration) (status int, body []byte, err error) {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return 0, nil, err
	}
	client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	response, err := client.Do(request)
	if err != nil {
		return 0, nil, err
	}
	defer func() { _ = response.Body.Close() }()
	body, err = ReadAll(response.Body, limit)
	return response.StatusCode, body, err
}
