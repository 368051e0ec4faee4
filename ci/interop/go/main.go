// A session by gomemcache.
package main

import (
	"bytes"
	"errors"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/bradfitz/gomemcache/memcache"
)

// is stops the program unless an error is the one that is wanted.
func is(found, wanted error) {
	if !errors.Is(found, wanted) {
		log.Fatalf("found %v, wanted %v", found, wanted)
	}
}

// has stops the program unless key has this value.
func has(client *memcache.Client, key, value string) *memcache.Item {
	item, err := client.Get(key)
	is(err, nil)
	if string(item.Value) != value {
		log.Fatalf("found %q, wanted %q", item.Value, value)
	}
	return item
}

func main() {
	client := memcache.New("127.0.0.1:" + os.Args[1])
	// By default it waits for half a second, and the machine may be busy.
	client.Timeout = time.Minute
	is(client.Ping(), nil)
	is(client.FlushAll(), nil)
	is(client.Set(&memcache.Item{Key: "key", Value: []byte("value"), Flags: 7, Expiration: 100}), nil)
	item := has(client, "key", "value")
	if item.Flags != 7 {
		log.Fatalf("found flags %d", item.Flags)
	}
	is(client.Add(&memcache.Item{Key: "key", Value: []byte("other")}), memcache.ErrNotStored)
	is(client.Replace(&memcache.Item{Key: "absent", Value: []byte("other")}), memcache.ErrNotStored)
	item.Value = []byte("swapped")
	is(client.CompareAndSwap(item), nil)
	is(client.CompareAndSwap(item), memcache.ErrCASConflict)
	is(client.Append(&memcache.Item{Key: "key", Value: []byte("+")}), nil)
	is(client.Prepend(&memcache.Item{Key: "key", Value: []byte("-")}), nil)
	has(client, "key", "-swapped+")
	is(client.Set(&memcache.Item{Key: "number", Value: []byte("10")}), nil)
	number, err := client.Increment("number", 5)
	is(err, nil)
	if number != 15 {
		log.Fatalf("found %d", number)
	}
	keys := []string{"absent"}
	for n := range 500 {
		key := fmt.Sprintf("k%d", n)
		keys = append(keys, key)
		is(client.Set(&memcache.Item{Key: key, Value: []byte(key)}), nil)
	}
	items, err := client.GetMulti(keys)
	is(err, nil)
	if len(items) != 500 || string(items["k7"].Value) != "k7" {
		log.Fatalf("found %d items", len(items))
	}
	big := bytes.Repeat([]byte{1, 2, 3, 4}, 250_000)
	is(client.Set(&memcache.Item{Key: "big", Value: big}), nil)
	has(client, "big", string(big))
	is(client.Touch("key", 100), nil)
	is(client.Delete("key"), nil)
	is(client.Delete("key"), memcache.ErrCacheMiss)
	fmt.Println("gomemcache: all as expected")
}
