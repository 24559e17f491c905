package localstore

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"strconv"
	"sync"
	"syscall"
)

const (
	lowestPort = 10000 // below are the ports that programs are known by
	portTries  = 100
	startTries = 3
)

// handedOut are the ports that this process was given: one that nobody listens on yet must not be given to a second
// caller.
var handedOut sync.Map

var errPortTaken = errors.New("the port was taken by another program")

// FreePort returns a port that nobody listens on at 127.0.0.1 or ::1, another one each time. It is not one of those
// that the kernel gives to outgoing connections: such a port may be gone at any moment, and a client that keeps trying
// to reach a server which is down may even end up connected to itself, after which the server cannot come back.
func FreePort() (int, error) {
	end := outgoingPorts()
	if end < lowestPort+1000 {
		return kernelsChoice() // this machine gives nearly everything to outgoing connections
	}
	for range portTries {
		port := lowestPort + rand.IntN(end-lowestPort)
		if !isFree(port) {
			continue
		}
		if _, given := handedOut.LoadOrStore(port, true); !given {
			return port, nil
		}
	}
	return 0, errors.New("find a free port: there is none")
}

// outgoingPorts is where the range begins that the kernel takes ports for outgoing connections from (ip(7)).
func outgoingPorts() int {
	begin := 32768 // the default
	if content, err := os.ReadFile("/proc/sys/net/ipv4/ip_local_port_range"); err == nil {
		_, _ = fmt.Sscan(string(content), &begin)
	}
	return begin
}

func isFree(port int) bool {
	for _, host := range []string{"127.0.0.1", "::1"} {
		listener, err := net.Listen("tcp", net.JoinHostPort(host, strconv.Itoa(port)))
		if err == nil {
			_ = listener.Close()
		} else if host == "127.0.0.1" || errors.Is(err, syscall.EADDRINUSE) {
			return false
		} // else there is no IPv6 here
	}
	return true
}

func kernelsChoice() (int, error) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// onFreePort calls start with free ports until it gets one that nobody else seized meanwhile.
func onFreePort(ctx context.Context, start func(context.Context, int) error) error {
	for try := 1; ; try++ {
		port, err := FreePort()
		if err != nil {
			return err
		}
		if err = start(ctx, port); !errors.Is(err, errPortTaken) || try == startTries {
			return err
		}
	}
}
