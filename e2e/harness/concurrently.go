package harness

import "sync"

// Concurrently sends requests at the same moment, one from each racer, and returns the responses.
func Concurrently(racers int, send func(racer int) Answer) []Answer {
	answers := make([]Answer, racers)
	var start, end sync.WaitGroup
	start.Add(1)
	for i := range answers {
		end.Go(func() {
			start.Wait()
			answers[i] = send(i)
		})
	}
	start.Done()
	end.Wait()
	return answers
}
