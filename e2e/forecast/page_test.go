// Package forecast opens the page of `proxy forecast -o html` in a real Chromium, and uses it like a user.
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
	"github.com/vicinity-proxy/vicinity/pkg/proxy/analysis/forecast"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/manifests"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/golden"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/must"
	"github.com/vicinity-proxy/vicinity/pkg/testkit/objects"
)

// picture is the image in README.md.
const picture = "forecast.png"

// browser is a page in a Chromium, with its errors.
type browser struct {
	t   *testing.T
	ctx context.Context

	mutex    sync.Mutex
	faults   []string
	requests []string // their addresses
}

// open writes a forecast of some objects as a page, and opens it in a window of some width, in pixels.
func open(t *testing.T, objects convert.Objects, width int64, bounds ...uint64) *browser {
	t.Helper()
	report, rejected := forecast.Compute(forecast.NewCluster(objects, convert.View{}),
		forecast.Options{Now: time.Now(), Bounds: append([]uint64{policy.DefaultLoadBound}, bounds...)})
	if len(rejected) > 0 {
		t.Fatal(rejected)
	}
	return openReport(t, &report, width)
}

func openReport(t *testing.T, report *forecast.Report, width int64) *browser {
	t.Helper()
	var text bytes.Buffer
	must.Succeed(t, forecast.HTML(&text, report))
	file := filepath.Join(t.TempDir(), "forecast.html")
	must.Succeed(t, os.WriteFile(file, text.Bytes(), 0o600))

	// Root cannot use Chromium's own sandbox; the page is ours.
	options := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.NoSandbox)
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewExecAllocator(ctx, options...)
	t.Cleanup(cancel)
	ctx, cancel = chromedp.NewContext(ctx)
	t.Cleanup(cancel)
	b := &browser{t: t, ctx: ctx}
	must.Succeed(t, chromedp.Listen(ctx, b.onEvent))
	_, err := chromedp.Call(ctx, network.Enable, network.EnableParams{})
	must.Succeed(t, err)
	window := emulation.SetDeviceMetricsOverrideParams{Width: width, Height: 1000, DeviceScaleFactor: 1, Mobile: width < 500}
	_, err = chromedp.Call(ctx, emulation.SetDeviceMetricsOverride, window)
	must.Succeed(t, err)
	b.do("open the page", chromedp.Navigate((&url.URL{Scheme: "file", Path: file}).String()))
	t.Cleanup(func() {
		b.mutex.Lock()
		defer b.mutex.Unlock()
		if len(b.faults) > 0 {
			t.Errorf("errors of the page: %q", b.faults)
		}
		if len(b.requests) != 1 || !strings.HasPrefix(b.requests[0], "file:") {
			t.Errorf("the page made other requests: %q", b.requests)
		}
	})
	return b
}

// onEvent records the page's errors and its requests.
func (b *browser) onEvent(event any) {
	b.mutex.Lock()
	defer b.mutex.Unlock()
	switch event := event.(type) {
	case *runtime.EventExceptionThrown:
		b.faults = append(b.faults, event.ExceptionDetails.Text)
	case *runtime.EventConsoleAPICalled:
		b.faults = append(b.faults, fmt.Sprint(event.Type))
	case *network.EventRequestWillBeSent:
		b.requests = append(b.requests, event.Request.URL)
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

func (b *browser) expect(what, expression string, want any) {
	b.t.Helper()
	if got := get[any](b, expression); fmt.Sprint(got) != fmt.Sprint(want) {
		b.t.Errorf("%s: %v, want %v", what, got, want)
	}
}

// press presses keys in the focused element.
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

func TestPageOfTenServicesByKeyboard(t *testing.T) {
	shop, problems, err := manifests.Objects("shop")
	must.Succeed(t, err)
	if len(problems) > 0 {
		t.Fatal(problems)
	}
	b := open(t, shop, 1400)
	b.expect("the settings", `document.querySelectorAll("#settings tbody tr").length`, 6)
	b.expect("the matrix", `[...document.querySelectorAll("#matrix td")].map((cell) => cell.textContent).join()`,
		"27 %,4.5 %,2.0 %,5.3 %,26 %,2.0 %,5.3 %,4.5 %,20 %") // 3.3 % are refused
	b.expect("the current bar", `[...document.querySelector("#settings .bar").children].map((part) => part.style.background).join()`,
		"var(--node),var(--zone),var(--region),var(--over)")
	b.expect("the refused share", `document.querySelector("#settings .over").textContent`, "3.3 %")
	b.expect("the Services", rows+`.length`, 10)
	b.expect("the first Service, with the most refused connections",
		`[...`+rows+`[0].cells].slice(0, 4).map((cell) => cell.textContent).join()`,
		"shop/login,4,33 %,0 %")
	b.expect("in red", rows+`[0].cells[2].firstChild.className`, "over")
	b.expect("the next Service, with the most avoidable traffic to other zones", rows+`[1].cells[0].textContent`, "shop/api")
	b.expect("a Service that a setting does not affect", `[...`+rows+`]`+
		`.find((row) => row.cells[0].textContent === "ops/metrics").cells[6].textContent`, "=")

	// From the heading of the first column: sort, move to the first row, select it, and view another setting.
	b.do("focus", chromedp.Focus(`#services thead button`))
	b.press(kb.Enter)
	b.expect("sorted by name", `document.querySelector("#services th[aria-sort=ascending]").textContent`, "Service ▲")
	b.expect("the first by name", rows+`[0].cells[0].textContent`, "ops/logs")
	b.press(kb.Enter)
	b.expect("the first by name, backwards", rows+`[0].cells[0].textContent`, "shop/web")
	for range 11 {
		b.press(kb.Tab)
	}
	b.expect("the focus", `document.activeElement.textContent`, "shop/web")
	for range 7 {
		b.press(kb.ArrowDown)
	}
	b.press(kb.ArrowUp)
	b.expect("the focus, some rows on", `document.activeElement.textContent`, "shop/cart")
	b.expectOpened("shop/cart", kb.Enter)
	b.press(kb.Tab, kb.Enter)
	b.expect("the focus after the panel is closed by its button", `document.activeElement.textContent`, "shop/cart")
	b.expect("the row after that", `document.activeElement.getAttribute("aria-expanded")`, "false")
	b.expectOpened("shop/cart", " ")
	b.press(kb.Tab, kb.Escape)
	b.expect("the focus after Escape", `document.activeElement.textContent`, "shop/cart")
	b.expect("the panel after Escape", `document.getElementById("detail").hidden`, true)
	b.press(kb.Enter)
	b.expect("the chosen Service", `document.querySelector("#detail h2").textContent`, "shop/cart")
	b.expect("the source of the demand",
		`[...document.querySelectorAll("#detail p")].some((p) => p.textContent === "Demand: one client per Node, or as labelled.")`, true)
	b.expect("its endpoints", `document.querySelectorAll("#detail .track").length`, 8)
	b.expect("the overloaded endpoints", `document.querySelectorAll("#detail .hot").length`, 2)
	b.expect("the suggested annotation", `document.querySelector("#detail pre").textContent`,
		"metadata:\n  annotations:\n    vicinity.dev/max-load: \"120%\"\n")
	b.do("focus", chromedp.Focus(`#detail .tools button:last-of-type`))
	b.press(" ")
	b.expect("the overloaded endpoints with a bound", `document.querySelectorAll("#detail .hot").length`, 0)

	b.do("choose a setting", chromedp.Focus("#setting"))
	b.press(kb.ArrowDown, kb.ArrowDown)
	b.expect("from the first zone to the second with PreferSameZone", `document.querySelectorAll("#matrix td")[1].textContent`, "1.1 %")
	b.do("search", chromedp.SendKeys("#search", "CART"))
	b.expect("the number of results", rows+`.length`, 1)
	b.press(kb.Escape)
	b.expect("the panel after Escape elsewhere", `document.getElementById("detail").hidden`, false)
	b.do("search again", chromedp.SendKeys("#search", "CART"))
	b.do("search on", chromedp.SendKeys("#search", "x"))
	b.expect("the text without results", `document.getElementById("found").textContent`, "none found")
	b.press(kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace, kb.Backspace)
	b.do("show only what can improve", chromedp.Click("#better"))
	b.expect("the Services that can improve", rows+`.length`, 5)
	b.do("show all again", chromedp.Click("#better"))

	image := b.screenshot("forecast.png")
	if *golden.Update {
		must.Succeed(t, os.WriteFile(picture, image, 0o600))
	}
	light := get[string](b, `getComputedStyle(document.body).backgroundColor`)
	dark := emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: "dark"}}}
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, dark)
	must.Succeed(t, err)
	b.screenshot("forecast-dark.png")
	b.expect("the page in light mode", `"`+light+`"`, "rgb(255, 255, 255)")
	b.expect("the page in dark mode", `getComputedStyle(document.body).backgroundColor`, "rgb(20, 24, 29)")
	pdf, err := chromedp.Run(b.ctx, chromedp.PrintToPDF())
	must.Succeed(t, err)
	if !bytes.HasPrefix(pdf, []byte("%PDF")) || len(pdf) < 20_000 {
		t.Errorf("PDF of %d bytes", len(pdf))
	}
	must.Succeed(t, os.WriteFile("../../bin/forecast.pdf", pdf, 0o600))
	pageSize := emulation.SetDeviceMetricsOverrideParams{Width: 1040, Height: 700, DeviceScaleFactor: 1} // A4 or Letter, landscape
	_, err = chromedp.Call(b.ctx, emulation.SetDeviceMetricsOverride, pageSize)
	must.Succeed(t, err)
	_, err = chromedp.Call(b.ctx, emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Media: "print"})
	must.Succeed(t, err)
	b.expect("cells that do not fit on paper", `[...document.querySelectorAll("td")].filter((cell) =>
		cell.getBoundingClientRect().right > innerWidth || getComputedStyle(cell.closest(".scroll")).overflowX !== "visible").length`, 0)
}

// expectOpened opens the focused row. Then the panel must have the focus and be visible.
func (b *browser) expectOpened(service, key string) {
	b.t.Helper()
	b.expect("the row", `document.activeElement.getAttribute("aria-expanded")`, "false")
	b.press(key)
	b.expect("the panel", `document.activeElement.id`, "detail")
	b.expect("its name", `document.getElementById(document.activeElement.getAttribute("aria-labelledby")).textContent`, service)
	b.expect("its place", `(({top}) => top >= 0 && top < innerHeight / 2 || scrollY + innerHeight >= document.body.scrollHeight - 1)`+
		`(document.activeElement.getBoundingClientRect())`, true)
	b.expect("its row", `document.querySelector("#services [aria-expanded=true]").textContent`, service)
}

// TestPageShowsCosts uses a wide window and a narrow one. Without a price the page must not show any
// costs.
func TestPageShowsCosts(t *testing.T) {
	cluster := forecast.NewCluster(manyServices(10, 3), convert.View{})
	options := forecast.Options{Now: time.Now(), Bounds: []uint64{policy.DefaultLoadBound}}
	report, _ := forecast.Compute(cluster, options)
	report.EstimateCost(forecast.Traffic{"": 1e9 / (30 * 24 * 3600)}, 2) // 1 GB per month
	for _, width := range []int64{1280, 390} {
		b := openReport(t, &report, width)
		for i, total := range report.Settings {
			row := fmt.Sprintf(`document.getElementById("settings").tBodies[0].rows[%d]`, i)
			b.expect("a setting", row+`.cells[0].textContent`, total.Setting)
			b.expect("bytes", row+`.cells[6].textContent`, fmt.Sprintf("%.2f GB", total.OtherZones))
			b.expect("money", row+`.cells[7].textContent`, fmt.Sprintf("%.2f", 2*total.OtherZones))
			b.expect("its column", row+`.cells[6].dataset.label`, "To other zones per month")
		}
		b.expect("the price", `document.getElementById("price").textContent`,
			"1.00 GB are transferred per month. Traffic to other zones costs 2 per GB.")
		b.expect("overflow of the window", `document.documentElement.scrollWidth - innerWidth`, 0)
		b.screenshot(fmt.Sprintf("forecast-cost-%d.png", width))
	}
	report, _ = forecast.Compute(cluster, options)
	b := openReport(t, &report, 1280)
	b.expect("columns without a price", `document.getElementById("settings").rows[0].cells.length`, 7)
	b.expect("the price", `document.getElementById("price").offsetHeight`, 0)
}

// TestPageFitsIntoEveryWindow checks that nothing is cut off outside of a scrollable box, that each Service's name
// and improvement are visible wherever the box is scrolled to, and that the page reports which zones it shows if there
// are many.
func TestPageFitsIntoEveryWindow(t *testing.T) {
	long := manyServices(60, 40)
	for i := range long.Services {
		long.Services[i].Name += "-of-a-name-as-long-as-helm-makes-them"
	}
	for i := range long.Slices {
		long.Slices[i].Labels[discoveryv1.LabelServiceName] += "-of-a-name-as-long-as-helm-makes-them"
	}
	for _, width := range []int64{1600, 1280, 390} {
		t.Run(fmt.Sprint(width), func(t *testing.T) {
			b := open(t, long, width, 140, 160, 200) // each is a column
			fits := func(what string) {
				t.Helper()
				b.expect(what+": overflow of the window", `document.scrollingElement.scrollWidth - innerWidth`, 0)
				b.expect(what+": elements cut off outside of a box", `[...document.querySelectorAll("body *")].filter((e) => !e.closest(".wide") &&
					e.getBoundingClientRect().right > innerWidth).length`, 0)
				b.expect(what+": scrollable boxes without a hint", `[...document.querySelectorAll(".scroll")].filter((box) =>
					box.scrollWidth > box.clientWidth && !(box.previousElementSibling.matches(".hint") && box.tabIndex === 0)).length`, 0)
				b.expect(what+": Services with a cut name or improvement", `(() => {
					const box = document.querySelector("#services").parentElement;
					return [0, 1e6].flatMap((to) => {
						box.scrollLeft = to;
						return [...`+rows+`].filter((row) => {
							const name = row.cells[0].firstChild.getBoundingClientRect(), better = [...row.cells].at(-1).getBoundingClientRect();
							return name.left < 0 || name.right > innerWidth || better.right > innerWidth || row.cells[0].scrollWidth > row.cells[0].clientWidth;
						});
					}).length;
				})()`, 0)
			}
			fits("the page")
			b.do("go to a Service", chromedp.Focus("#services tbody button"))
			b.press(kb.Enter)
			b.expect("the panel", `document.activeElement.id`, "detail")
			fits("with a panel")
			b.expect("the zones", `document.getElementById("zones").textContent`,
				"These are the 16 of 40 zones with the most demand; “other” is the remaining 24, and all without a zone: "+
					"some connections from other to other stay in their zone.")
			b.expect("the scrollable boxes", `[...document.querySelectorAll(".wide")].map((box) => box.id || box.firstChild.id).join()`,
				map[int64]string{1600: "matrix", 1280: "matrix,services", 390: "matrix"}[width])
			b.screenshot(fmt.Sprintf("forecast-%d.png", width))
		})
	}
}

// TestPageShowsWhyConnectionsAreRefused also checks that a missing label is not shown as a number.
func TestPageShowsWhyConnectionsAreRefused(t *testing.T) {
	shop, _, err := manifests.Objects("shop")
	must.Succeed(t, err)
	for _, node := range shop.Nodes {
		delete(node.Labels, string(policy.Region))
	}
	b := open(t, shop, 1280)
	b.expect("the unknown region",
		`[...document.querySelectorAll("#settings tbody tr")].map((row) => row.cells[4].textContent).join("")`, "------")
	b.expect("the remark on it", `document.getElementById("about").textContent.includes("so it is unknown what stays in a region")`, true)
	b.expect("the first is chosen", rows+`[0].click() === undefined`, true)
	b.expect("the Service with refused connections", `document.querySelector("#detail h2").textContent`, "shop/login")
	b.expect("the cause",
		`document.querySelector("#detail .cause").textContent.startsWith("33 % of its connections are refused: those from 3 of 9 Nodes")`, true)
	b.expect("the bar of its connections", `document.querySelector("#detail .bar").lastChild.style.background`, "var(--over)")
}

// manyServices returns a cluster of many Services, each with ten endpoints.
func manyServices(services, zones int) convert.Objects {
	var state convert.Objects
	zoneOf := func(node int) string { return fmt.Sprintf("zone-%02d", node%zones) }
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

func TestPageOfFiveThousandServices(t *testing.T) {
	b := open(t, manyServices(5000, 5), 1400)
	b.expect("the first page", `document.getElementById("found").textContent`, "1 to 50 of 5000")
	b.expect("its rows", rows+`.length`, 50)
	b.do("the next page", chromedp.Click("#next"))
	b.expect("the next page", `document.getElementById("found").textContent`, "51 to 100 of 5000")
	b.do("search", chromedp.SendKeys("#search", "web-4321"))
	b.expect("the number of results", rows+`.length`, 1)
	b.do("choose it", chromedp.Focus("#services tbody button"))
	b.press(kb.Enter)
	b.expect("its endpoints", `document.querySelectorAll("#detail .track").length`, 10)
	b.expect("the zones", `document.querySelectorAll("#matrix td").length`, 25)
	b.screenshot("forecast-large.png")
}
