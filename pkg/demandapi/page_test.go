package demandapi_test

import (
	"fmt"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/vicinity-proxy/vicinity/pkg/demandapi"
)

func TestParseReturnsThePage(t *testing.T) {
	page := demandapi.Page{
		Cursor: "abc-1", Duration: 30012 * time.Millisecond, Skipped: 7,
		Counts: map[string]uint64{"shop/web": 6024, "shop/cart": 1, "a/b": 1<<64 - 1}, Open: map[string]uint64{"shop/web": 310},
	}
	text := string(page.Text())
	want := "cursor abc-1\nseconds 30.012\nleft-out 7\na/b 18446744073709551615\nshop/cart 1\nshop/web 6024\n" +
		"open-services 1\nopen shop/web 310\n"
	if text != want {
		t.Errorf("page is\n%swant\n%s", text, want)
	}
	read, err := demandapi.Parse([]byte(text))
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(page, read); diff != "" {
		t.Errorf("parsed page (-written +parsed):\n%s", diff)
	}
}

func TestTextOmitsServicesWithoutConnections(t *testing.T) {
	page := demandapi.Page{Cursor: "c", Counts: map[string]uint64{"shop/web": 0}}
	if text := string(page.Text()); strings.Contains(text, "shop") {
		t.Errorf("page contains a Service without connections:\n%s", text)
	}
}

func TestParseLargestPage(t *testing.T) {
	page := demandapi.Page{Cursor: strings.Repeat("c", 64), Duration: time.Hour, Counts: map[string]uint64{}, Open: map[string]uint64{}}
	for i := range demandapi.MaxServices {
		name := strings.Repeat("n", 63) + "/" + fmt.Sprintf("%063d", i)
		page.Counts[name], page.Open[name] = 1<<64-1, 1<<64-1
	}
	text := page.Text()
	if len(text) > demandapi.MaxSize {
		t.Errorf("the largest page has %d bytes, more than %d", len(text), demandapi.MaxSize)
	}
	read, err := demandapi.Parse(text)
	if err != nil || len(read.Counts) != demandapi.MaxServices {
		t.Errorf("the largest page was parsed with %d Services, error %v", len(read.Counts), err)
	}
}

// TestCursorDoesNotRetainPage: a cursor keeps no more of its page in memory. A client holds the cursors of thousands of
// pages.
func TestCursorDoesNotRetainPage(t *testing.T) {
	const pages, services = 100, 500
	page := demandapi.Page{Cursor: "c", Counts: map[string]uint64{}}
	for i := range services {
		page.Counts[fmt.Sprintf("shop/web-%03d", i)] = 10
	}
	text, cursors := page.Text(), make([]string, pages)
	before := heapInUse()
	for i := range cursors {
		read, err := demandapi.Parse(text)
		if err != nil {
			t.Fatal(err)
		}
		cursors[i] = read.Cursor
	}
	if retained := heapInUse() - before; retained > pages*int64(len(text))/4 {
		t.Errorf("the cursors of %d pages of %d bytes keep %d bytes in memory", pages, len(text), retained)
	}
	runtime.KeepAlive(cursors)
}

// heapInUse returns the bytes in use.
func heapInUse() int64 {
	var memory runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&memory)
	return int64(memory.HeapAlloc)
}

func TestParseIgnoresUnknownKeys(t *testing.T) {
	read, err := demandapi.Parse([]byte("cursor c\nfuture value\nseconds 1\nshop/web 3\n"))
	if err != nil || read.Counts["shop/web"] != 3 || read.Duration != time.Second {
		t.Errorf("read %+v, error %v", read, err)
	}
}

func TestParseRejectsInvalidPages(t *testing.T) {
	tooMany := "cursor c\n"
	for i := range demandapi.MaxServices + 1 {
		tooMany += fmt.Sprintf("shop/web-%d 1\n", i)
	}
	for name, text := range map[string]string{
		"empty": "", "HTML": "<html>\n", "no cursor": "seconds 1\nshop/web 3\n", "long cursor": "cursor " + strings.Repeat("c", 65),
		"negative": "cursor c\nshop/web -3\n", "word": "cursor c\nshop/web many\n", "too large": "cursor c\nshop/web 18446744073709551616\n",
		"NaN seconds": "cursor c\nseconds NaN\n", "too many seconds": "cursor c\nseconds 1e9\n", "left out": "cursor c\nleft-out -1\n",
		"open without a Service": "cursor c\nopen-services 1\nopen 3\n",
		"open without a number":  "cursor c\nopen-services 1\nopen shop/web\n",
		"too many":               tooMany,
	} {
		t.Run(name, func(t *testing.T) {
			if page, err := demandapi.Parse([]byte(text)); err == nil {
				t.Errorf("parsed as %+v, want an error", page)
			}
		})
	}
}

func FuzzParse(f *testing.F) {
	f.Add("cursor c\nseconds 30\nleft-out 1\nshop/web 3\n")
	f.Fuzz(func(t *testing.T, text string) {
		page, err := demandapi.Parse([]byte(text))
		if err == nil && (page.Duration < 0 || page.Skipped < 0 || page.Cursor == "") {
			t.Errorf("%q was parsed as %+v", text, page)
		}
	})
}
