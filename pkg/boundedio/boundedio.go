// Package boundedio reads untrusted data up to a size limit, because a file, server or process may send data without
// end. Each limit is defined next to the code that reads.
package boundedio

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"time"
)

// Error means that a text was not read because it has more bytes than a limit.
type Error struct{ Limit int64 }

// Error returns a message with the limit.
func (e Error) Error() string {
	return fmt.Sprintf("larger than the limit of %d bytes", e.Limit)
}

// ReadAll reads to the end. It fails with an Error if there are more than limit bytes.
func ReadAll(r io.Reader, limit int64) ([]byte, error) {
	text, err := io.ReadAll(io.LimitReader(r, limit+1))
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
	defer func() { _ = file.Close() }() // the file was only read, so closing cannot lose data
	text, err := ReadAll(file, limit)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", name, err)
	}
	return text, nil
}

// Get requests a page from a server. It fails if the page has more than limit bytes or takes longer than timeout. It
// does not follow redirects: a server must not choose which server receives the client's credentials.
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
