// Package forecast opens the page of `proxy forecast -o html` in a real Chromium, and uses it as a person does.
package forecast

import (
	"bytes"
	"context"
	"fmt"
	"math/rand/v2"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/chromedp/chromedp/kb"
	discoveryv1 "k8s.io/api/discovery/v1"

	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/folder"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// picture is what README.md shows.
const picture = "forecast.png"

// browser is a page in a Chromium, and what went wrong in it.
type browser struct {
	t   *testing.T
	ctx context.Context

	mutex  sync.Mutex
	faults []string
	asked  []string // addresses
}

// open writes a forecast of some objects as a page, and opens it.
func open(t *testing.T, objects convert.Objects) *browser {
	t.Helper()
	report, refused := forecast.Make(forecast.NewCluster(objects, convert.View{}),
		forecast.Options{Now: time.Now(), Bounds: []uint64{policy.UsualMaxLoad}, DemandFrom: "Each Node counts as one client."})
	if len(refused) > 0 {
		t.Fatal(refused)
	}
	var text bytes.Buffer
	must.Succeed(t, forecast.HTML(&text, &report))
	file := filepath.Join(t.TempDir(), "forecast.html")
	must.Succeed(t, os.WriteFile(file, text.Bytes(), 0o600))

	// Root may not use Chromium's own sandbox; the page is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox, chromedp.WindowSize(1400, 1000))
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	must.Succeed(t, chromedp.Listen(ctx, b.note))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must.Succeed(t, err)
	b.do("open the page", chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()))
	t.Cleanup(func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		if len(b.faults) > 0 {
			t.Errorf("the page complains: %q", b.faults)
		}
		if len(b.asked) != 1 || !strings.HasPrefix(b.asked[0], "file:") {
			t.Errorf("the page asks for more than itself: %q", b.asked)
		}
	})
	return b
}

// note takes down what the page complains of, and what it asks for.
func (b *browser) note(event any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.faults = append(b.faults, fmt.Sprint(event.Type))
	case *network.EventRequestWillBeSent:
		b.asked = append(b.asked, event.Request.URL)
	}
}

func (b *browser) do(what string, actions ...chromedp.Action[chromedp.Void]) {
	b.t.Helper()
	if err := chromedp.Do(b.ctx, actions...); err != nil {
		b.t.Fatalf("%s: %v", what, err)
	}
}

// get evaluates an expression.
func get[T any](b *browser, expression string) T {
	b.t.Helper()
	value, err := chromedp.Run(b.ctx, chromedp.Evaluate[T](expression))
	if err != nil {
		b.t.Fatalf("%s: %v", expression, err)
	}
	return value
}

func (b *browser) want(what, expression string, want any) {
	b.t.Helper()
	if got := get[any](b, expression); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// press presses keys where the focus is.
func (b *browser) press(keys ...string) {
	b.t.Helper()
	for _, key := range keys {
		b.do("press a key", chromedp.KeyEvent(key))
	}
}

func (b *browser) screenshot(name string) []byte {
	b.t.Helper()
	image, err := chromedp.Run(b.ctx, chromedp.FullScreenshot(100))
	must.Succeed(b.t, err)
	must.Succeed(b.t, os.MkdirAll("../../bin", 0o755))
	must.Succeed(b.t, os.WriteFile(filepath.Join("../../bin", name), image, 0o600))
	return image
}

const rows = `document.querySelectorAll("#services tbody tr")`

func TestThePageOfTenServicesIsUsedByKeyboard(t *testing.T) {
	shop, problems, err := folder.Objects("shop", nil)
	must.Succeed(t, err)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	b := open(t, shop)
	b.want("the settings", `document.querySelectorAll("#settings tbody tr").length`, 6)
	b.want("the matrix", `[...document.querySelectorAll("#matrix td")].map((cell) => cell.textContent).join()`,
		"27 %,4.5 %,2.0 %,5.3 %,26 %,2.0 %,5.3 %,4.5 %,20 %") // 3.3 % are refused
	b.want("the bar of what is now", `[...document.querySelector("#settings .bar").children].map((part) => part.style.background).join()`,
		"var(--node),var(--zone),var(--region),var(--over)")
	b.want("what no setting but none refuses", `document.querySelector("#settings .over").textContent`, "3.3 %")
	b.want("the Services", rows+`.length`, 10)
	b.want("the first, of which most is refused", `[...`+rows+`[0].cells].slice(0, 4).map((cell) => cell.textContent).join()`, "shop/login,4,33 %,0 %")
	b.want("in red", rows+`[0].cells[2].firstChild.className`, "over")
	b.want("the next, of which most leaves the zone and can stay", rows+`[1].cells[0].textContent`, "shop/api")
	b.want("one to which a setting means nothing", `[...`+rows+`]`+
		`.find((row) => row.cells[0].textContent === "ops/metrics").cells[6].textContent`, "=")

	// From the heading of the first column: sort, go to the first row, choose it, and look at another setting.
	b.do("focus", chromedp.Focus(`#services thead button`))
	b.press(kb.Enter)
	b.want("sorted by name", `document.querySelector("#services th[aria-sort=ascending]").textContent`, "Service ▲")
	b.want("the first by name", rows+`[0].cells[0].textContent`, "ops/logs")
	b.press(kb.Enter)
	b.want("the first by name, backwards", rows+`[0].cells[0].textContent`, "shop/web")
	for range 11 {
		b.press(kb.Tab)
	}
	b.want("the focus", `document.activeElement.cells[0].textContent`, "shop/web")
	for range 7 {
		b.press(kb.ArrowDown)
	}
	b.press(kb.ArrowUp)
	b.want("the focus, some rows on", `document.activeElement.cells[0].textContent`, "shop/cart")
	b.press(kb.Enter)
	b.want("the chosen Service", `document.querySelector("#detail h2").textContent`, "shop/cart")
	b.want("its endpoints", `document.querySelectorAll("#detail .track").length`, 8)
	b.want("those that are overloaded", `document.querySelectorAll("#detail .hot").length`, 2)
	b.want("what to write", `document.querySelector("#detail pre").textContent`,
		"metadata:\n  annotations:\n    vicinity.dev/max-load: \"120%\"\n")
	b.do("focus", chromedp.Focus(`#detail .tools button:last-of-type`))
	b.press(" ")
	b.want("those that are overloaded with a bound", `document.querySelectorAll("#detail .hot").length`, 0)

	b.do("choose a setting", chromedp.Focus("#setting"))
	b.press(kb.ArrowDown, kb.ArrowDown)
	b.want("from the first zone to the second with PreferSameZone", `document.querySelectorAll("#matrix td")[1].textContent`, "1.1 %")
	b.do("search", chromedp.SendKeys("#search", "CART"))
	b.want("what is found", rows+`.length`, 1)
	b.do("search on", chromedp.SendKeys("#search", "x"))
	b.want("what is found of nothing", `document.getElementById("found").textContent`, "none found")
	b.press(kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace)
	b.do("only what can be better", chromedp.Click("#better"))
	b.want("what can be better", rows+`.length`, 5)
	b.do("all again", chromedp.Click("#better"))

	image := b.screenshot("forecast.png")
	if *golden.Update {
		must.Succeed(t, os.WriteFile(picture, image, 0o600))
	}
	light := get[string](b, `getComputedStyle(document.body).backgroundColor`)
	dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, dark)
	must.Succeed(t, err)
	b.screenshot("forecast-dark.png")
	b.want("the page in the light", `"`+light+`"`, "rgb(255, 255, 255)")
	b.want("the page in the dark", `getComputedStyle(document.body).backgroundColor`, "rgb(20, 24, 29)")
	paper, err := chromedp.Run(b.ctx, chromedp.PrintToPDF())
	must.Succeed(t, err)
	if !bytes.HasPrefix(paper, []byte("%PDF")) || len(paper) < 20_000 {
		t.Errorf("%d bytes on paper", len(paper))
	}
	must.Succeed(t, os.WriteFile("../../bin/forecast.pdf", paper, 0o600))
}

// town is a cluster of many Services, each with ten endpoints.
func town(services int) convert.Objects {
	var state convert.Objects
	zoneOf := func(node int) string { return fmt.Sprint("zone-", string(rune('a'+node%5))) }
	const nodes = 200
	for i := range nodes {
		state.Add(objects.Node(fmt.Sprintf("node-%03d", i), map[string]string{string(policy.Zone): zoneOf(i)}))
	}
	random := rand.New(rand.NewPCG(1, 2))
	for i := range services {
		service := objects.Service(fmt.Sprint("team-", i%50), fmt.Sprintf("web-%04d", i))
		service.Spec.ClusterIP = fmt.Sprintf("10.%d.%d.%d", 96+i/62500, i/250%250, i%250)
		var addresses []string
		for e := range 10 {
			addresses = append(addresses, fmt.Sprintf("10.%d.%d.%d", 128+e, i/250, i%250))
		}
		slice := objects.Slice(service.Namespace, service.Name, service.Name, addresses...)
		slice.Labels[discoveryv1.LabelManagedBy] = "endpointslice-controller.k8s.io"
		for e := range slice.Endpoints {
			node, ready := random.IntN(nodes), true
			slice.Endpoints[e].NodeName, slice.Endpoints[e].Zone = new(fmt.Sprintf("node-%03d", node)), new(zoneOf(node))
			slice.Endpoints[e].Conditions.Ready = &ready
		}
		state.Add(service)
		state.Add(slice)
	}
	return state
}

func TestThePageOfFiveThousandServicesIsSearched(t *testing.T) {
	b := open(t, town(5000))
	b.want("the first page", `document.getElementById("found").textContent`, "1 to 50 of 5000")
	b.want("its rows", rows+`.length`, 50)
	b.do("the next page", chromedp.Click("#next"))
	b.want("the next page", `document.getElementById("found").textContent`, "51 to 100 of 5000")
	b.do("search", chromedp.SendKeys("#search", "web-4321"))
	b.want("what is found", rows+`.length`, 1)
	b.do("choose it", chromedp.Focus("#services tbody tr"))
	b.press(kb.Enter)
	b.want("its endpoints", `document.querySelectorAll("#detail .track").length`, 10)
	b.want("the zones", `document.querySelectorAll("#matrix td").length`, 25)
	b.screenshot("forecast-large.png")
}
