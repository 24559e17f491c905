package stack

import (
	"errors"
	"fmt"
	"net"
	"slices"
	"strconv"
	"syscall"

	"github.com/almonerhq/almoner/shared/devkit/localstore"
)

// ports are the ports of the API, the pages and resourceapi, and the preferred port of the mailbox, or 0 for any.
type ports struct{ api, app, resource, mailbox int }

// choosePorts returns three consecutive free ports starting at first, or any three if first is 0.
func choosePorts(first int) (ports, error) {
	if first == 0 {
		free, err := freePorts(3)
		if err != nil {
			return ports{}, err
		}
		return ports{api: free[0], app: free[1], resource: free[2]}, nil
	}
	if first < 1 || first > 65533 {
		return ports{}, fmt.Errorf("PORT is %d, but it and the next two ports must be between 1 and 65535", first)
	}
	for port := first; port < first+3; port++ {
		if err := isFree(port); err != nil {
			return ports{}, err
		}
	}
	chosen := ports{api: first, app: first + 1, resource: first + 2}
	if isFree(first+3) == nil {
		chosen.mailbox = first + 3
	}
	return chosen, nil
}

// isFree checks both loopback addresses: "localhost" is either, and another program on one of them would get some of
// the requests.
func isFree(port int) error {
	for _, host := range []string{"127.0.0.1", "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		switch {
		case err == nil:
			_ = listener.Close()
		case errors.Is(err, syscall.EADDRINUSE):
			return fmt.Errorf(
				"port %d is in use by another program: stop it, or use other ports with: make run PORT=9000", port)
		case host == "127.0.0.1":
			return fmt.Errorf("port %d cannot be used (%w): use other ports with: make run PORT=9000", port, err)
		} // otherwise there is no IPv6
	}
	return nil
}

func freePorts(count int) ([]int, error) {
	var out []int
	for len(out) < count {
		port, err := localstore.FreePort()
		if err != nil {
			return nil, err
		}
		if !slices.Contains(out, port) {
			out = append(out, port)
		}
	}
	return out, nil
}

func loopback(port int) string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(port)) }
