module example.invalid/muniment-go-tests

go 1.24

require go.mongodb.org/mongo-driver/v2 v2.9.3
