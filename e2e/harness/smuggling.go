package harness

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"time"

	"github.com/almonerhq/almoner/shared/devkit/await"
)

// SendRaw sends bytes unchanged on a connection and returns every response until the server closes it. Unless the text
// asks for that (Connection: close), SendRaw closes the connection after 700 ms, because a server that waits for more
// of a body sends no response; on a slow machine, it may miss a response then.
func SendRaw(connection net.Conn, text string) []*http.Response {
	defer func() { _ = connection.Close() }()
	within := 700 * time.Millisecond
	if strings.Contains(text, "\r\nConnection: close\r\n") {
		within = await.Long
	}
	_ = connection.SetDeadline(time.Now().Add(within))
	if _, err := io.WriteString(connection, text); err != nil {
		return nil // closed by the server
	}
	var out []*http.Response
	for reader := bufio.NewReader(connection); ; {
		response, err := http.ReadResponse(reader, nil)
		if err != nil {
			return out
		}
		if _, err := io.ReadAll(response.Body); err != nil {
			return append(out, response)
		}
		out = append(out, response)
	}
}

// ambiguousHeaders are headers by the kind of ambiguity. They stand before or after LENGTH, the header of the right
// length, or in its place, in a request whose body ends early if it is read in chunks.
var ambiguousHeaders = map[string]string{
	"length and chunked":            "LENGTH\r\nTransfer-Encoding: chunked\r\n",
	"chunked and length":            "Transfer-Encoding: chunked\r\nLENGTH\r\n",
	"short length and chunked":      "Content-Length: 5\r\nTransfer-Encoding: chunked\r\n",
	"xchunked":                      "LENGTH\r\nTransfer-Encoding: xchunked\r\n",
	"chunked, twice":                "LENGTH\r\nTransfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
	"chunked, identity":             "LENGTH\r\nTransfer-Encoding: chunked, identity\r\n",
	"identity":                      "LENGTH\r\nTransfer-Encoding: identity\r\n",
	"chunked, spaced name":          "LENGTH\r\nTransfer-Encoding : chunked\r\n",
	"chunked, spaced line":          "LENGTH\r\n Transfer-Encoding: chunked\r\n",
	"chunked, tab":                  "LENGTH\r\nTransfer-Encoding:\tchunked\r\n",
	"chunked, vertical tab":         "LENGTH\r\nTransfer-Encoding: \x0bchunked\r\n",
	"chunked, quoted":               "LENGTH\r\nTransfer-Encoding: \"chunked\"\r\n",
	"chunked, folded":               "LENGTH\r\nTransfer-Encoding:\r\n chunked\r\n",
	"folded before":                 "X: y\r\n Transfer-Encoding: chunked\r\nLENGTH\r\n",
	"underscore":                    "LENGTH\r\nTransfer_Encoding: chunked\r\n",
	"bare line feed":                "X: y\nTransfer-Encoding: chunked\r\nLENGTH\r\n",
	"bare carriage return":          "X: y\rTransfer-Encoding: chunked\r\nLENGTH\r\n",
	"length after a NUL":            "X: \x00\r\nLENGTH\r\n",
	"length dropped by Connection":  "LENGTH\r\nConnection: Content-Length\r\n",
	"chunked dropped by Connection": "LENGTH\r\nConnection: Transfer-Encoding\r\n",
	"expect":                        "LENGTH\r\nExpect: 100-continue\r\n",
	"two hosts":                     "Host: evil.example\r\nLENGTH\r\n",
	"a header without a name":       ": x\r\nLENGTH\r\n",
	"upgrade": "LENGTH\r\nConnection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\n" +
		"HTTP2-Settings: AAMAAABkAARAAAAAAAIAAAAA\r\n",
}

// SmugglingRequests returns requests with an ambiguous end, by the kind of ambiguity. Each hides a second request that
// only one interpretation sees.
func SmugglingRequests(path, host, hidden string) map[string]string {
	second := "GET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	first := func(headers, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
			headers + "\r\n" + body
	}
	chunked := "0\r\n\r\n" + second
	length := fmt.Sprintf("Content-Length: %d\r\n", len(chunked))
	transfer := "Transfer-Encoding: chunked\r\n"
	all := map[string]string{
		"two lengths":           first("Content-Length: 0\r\n"+length, second),
		"two lengths, joined":   first(fmt.Sprintf("Content-Length: %d, 0\r\n", len(second)), second),
		"length signed":         first(fmt.Sprintf("Content-Length: +%d\r\n", len(second)), second),
		"length negative":       first("Content-Length: -1\r\n", second),
		"length hexadecimal":    first("Content-Length: 0x0\r\n", second),
		"length spaced":         first("Content-Length: 0 0\r\n", second),
		"length empty":          first("Content-Length: \r\n", second),
		"length huge":           first("Content-Length: 18446744073709551616\r\n", second),
		"chunk of a wrong size": first(transfer, "1\r\nAA\r\n"+chunked),
		"chunk signed":          first(transfer, "+0\r\n\r\n"+second),
		"chunk hexadecimal":     first(transfer, "0x0\r\n\r\n"+second),
		"chunk by line feed":    first(transfer, "2\nxx\n0\n\n"+second),
		"chunk with an endless extension": first(transfer,
			"0;"+strings.Repeat("x", 20<<10)+"\r\n\r\n"+second),
		"version":         strings.Replace(first(length+transfer, chunked), "HTTP/1.1", "HTTP/1.0", 1),
		"GET with a body": strings.Replace(first(length, chunked), "POST", "GET", 1),
		"request line split": "GET " + path + " HTTP/1.1\nX: GET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n" +
			length + "\r\n" + chunked,
		"path split": "GET " + path + "\rGET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"no host":    "POST " + path + " HTTP/1.1\r\n" + length + "\r\n" + chunked,
	}
	for kind, headers := range ambiguousHeaders {
		all[kind] = first(strings.Replace(headers, "LENGTH\r\n", length, 1), chunked)
	}
	return all
}
