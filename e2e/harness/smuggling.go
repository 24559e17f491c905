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

// SmugglingRequests returns requests with an ambiguous end, by the kind of ambiguity. Each hides a second request that
// only one interpretation sees.
func SmugglingRequests(path, host, hidden string) map[string]string {
	second := "GET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n"
	first := func(headers, body string) string {
		return "POST " + path + " HTTP/1.1\r\nHost: " + host + "\r\nContent-Type: application/json\r\n" +
			headers + "\r\n" + body
	}
	length := fmt.Sprintf("Content-Length: %d\r\n", len("0\r\n\r\n"+second))
	chunked := "0\r\n\r\n" + second
	return map[string]string{
		"length and chunked":       first(length+"Transfer-Encoding: chunked\r\n", chunked),
		"chunked and length":       first("Transfer-Encoding: chunked\r\n"+length, chunked),
		"short length and chunked": first("Content-Length: 5\r\nTransfer-Encoding: chunked\r\n", chunked),
		"two lengths":              first("Content-Length: 0\r\n"+length, second),
		"two lengths, joined":      first(fmt.Sprintf("Content-Length: %d, 0\r\n", len(second)), second),
		"xchunked":                 first(length+"Transfer-Encoding: xchunked\r\n", chunked),
		"chunked, twice": first(
			length+"Transfer-Encoding: chunked\r\nTransfer-Encoding: identity\r\n",
			chunked,
		),
		"chunked, identity":     first(length+"Transfer-Encoding: chunked, identity\r\n", chunked),
		"identity":              first(length+"Transfer-Encoding: identity\r\n", chunked),
		"chunked, spaced name":  first(length+"Transfer-Encoding : chunked\r\n", chunked),
		"chunked, spaced line":  first(length+" Transfer-Encoding: chunked\r\n", chunked),
		"chunked, tab":          first(length+"Transfer-Encoding:\tchunked\r\n", chunked),
		"chunked, vertical tab": first(length+"Transfer-Encoding: \x0bchunked\r\n", chunked),
		"chunked, quoted":       first(length+"Transfer-Encoding: \"chunked\"\r\n", chunked),
		"chunked, folded":       first(length+"Transfer-Encoding:\r\n chunked\r\n", chunked),
		"folded before":         first("X: y\r\n Transfer-Encoding: chunked\r\n"+length, chunked),
		"underscore":            first(length+"Transfer_Encoding: chunked\r\n", chunked),
		"bare line feed":        first("X: y\nTransfer-Encoding: chunked\r\n"+length, chunked),
		"bare carriage return":  first("X: y\rTransfer-Encoding: chunked\r\n"+length, chunked),
		"length signed":         first(fmt.Sprintf("Content-Length: +%d\r\n", len(second)), second),
		"length negative":       first("Content-Length: -1\r\n", second),
		"length hexadecimal":    first("Content-Length: 0x0\r\n", second),
		"length spaced":         first("Content-Length: 0 0\r\n", second),
		"length empty":          first("Content-Length: \r\n", second),
		"length huge":           first("Content-Length: 18446744073709551616\r\n", second),
		"length after a NUL":    first("X: \x00\r\n"+length, chunked),
		"chunk of a wrong size": first("Transfer-Encoding: chunked\r\n", "1\r\nAA\r\n"+chunked),
		"chunk signed":          first("Transfer-Encoding: chunked\r\n", "+0\r\n\r\n"+second),
		"chunk hexadecimal":     first("Transfer-Encoding: chunked\r\n", "0x0\r\n\r\n"+second),
		"chunk by line feed":    first("Transfer-Encoding: chunked\r\n", "2\nxx\n0\n\n"+second),
		"chunk with an endless extension": first(
			"Transfer-Encoding: chunked\r\n",
			"0;"+strings.Repeat("x", 20<<10)+"\r\n\r\n"+second,
		),
		"upgrade": first(
			length+"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: "+
				"AAMAAABkAARAAAAAAAIAAAAA\r\n",
			chunked,
		),
		"length dropped by Connection":  first(length+"Connection: Content-Length\r\n", chunked),
		"chunked dropped by Connection": first(length+"Connection: Transfer-Encoding\r\n", chunked),
		"expect":                        first(length+"Expect: 100-continue\r\n", chunked),
		"version": strings.Replace(
			first(length+"Transfer-Encoding: chunked\r\n", chunked), "HTTP/1.1", "HTTP/1.0", 1),
		"GET with a body": strings.Replace(first(length, chunked), "POST", "GET", 1),
		"request line split": "GET " + path + " HTTP/1.1\nX: GET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n" +
			length + "\r\n" + chunked,
		"path split":              "GET " + path + "\rGET " + hidden + " HTTP/1.1\r\nHost: " + host + "\r\n\r\n",
		"no host":                 "POST " + path + " HTTP/1.1\r\n" + length + "\r\n" + chunked,
		"two hosts":               first("Host: evil.example\r\n"+length, chunked),
		"a header without a name": first(": x\r\n"+length, chunked),
	}
}
